"""Whether precisions learn alike: validation success after some epochs, in float32 and bfloat16.

The field alone is trained, from the same weights and on the same batches of each seed, and plans
for the validation windows by its energy, searched exactly. Success rates of the precisions are
paired by seed. Trainings are kept below --work and go on where they were stopped; so one seed or
one precision after the other can be measured, and all gathered by one more call.

    python benchmarks/precision.py DATA --work WORK --out benchmarks/results/precision.json
    python benchmarks/precision.py DATA --work WORK --seeds 0 --precisions bfloat16
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cefito.cli.console import progress, talk
from cefito.data import PreparedDataset, cut_windows, open_dataset
from cefito.data.windows import action_space
from cefito.evaluation.statistics import seed_interval
from cefito.files import write_json
from cefito.planners.cefito.fit import fit_field
from cefito.planners.methods import load_config
from cefito.runtime import capability, pick_device
from cefito.training.trainer import TrainingContext

PRECISIONS = ("float32", "bfloat16")


def trained(
    dataset: PreparedDataset, precision: str, seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Scores of one training on the validation windows, per cent, after its last epoch."""
    overrides = {
        "training.optimiser.epochs": given.epochs,
        "training.stopping.every": given.epochs,  # the last epoch, none that did best
        "training.stopping.windows": given.windows,
        "training.precision": precision,
        **dict(entry.split("=", 1) for entry in given.set),
    }
    config = load_config(
        given.preset, dataset=dataset.name, horizon=given.horizon, overrides=overrides
    )
    settings = config.settings
    train, val = (
        cut_windows(dataset, horizon=given.horizon, split=split) for split in ("train", "val")
    )
    device = pick_device(given.device)
    _, results = fit_field(
        train,
        val,
        space=action_space(train, settings.search.actions),
        settings=settings,
        seed=seed,
        context=TrainingContext(
            device=device,
            folder=given.work / f"{precision}-{seed}",
            key=dataset.fingerprint,
            progress=progress,
            tracker="none",
        ),
    )
    (result, *_) = results.values()
    scores = dict(zip(result.metrics, result.scores, strict=True))
    row = {"seed": seed, "precision": result.precision, "epochs": result.epochs, **scores}
    talk(json.dumps(row))
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means with their 90 % intervals over seeds, and the difference of pairs."""
    value: dict[str, Any] = {}
    for metric in ("success_rate", "mean_accuracy"):
        by = {
            precision: {row["seed"]: row[metric] for row in rows if row["precision"] == precision}
            for precision in PRECISIONS
        }
        both = sorted(set(by["float32"]) & set(by["bfloat16"]))
        parts = {name: list(scores.values()) for name, scores in by.items()}
        parts["bfloat16 less float32"] = [by["bfloat16"][one] - by["float32"][one] for one in both]
        value[metric] = {
            name: {"mean": found.mean, "half_width": found.half_width, "values": scores}
            for name, scores in parts.items()
            if scores and (found := seed_interval(scores))
        }
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, help="a prepared data set")
    parser.add_argument("--work", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--windows", type=int, default=200, help="of validation; 0 for all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    dataset = open_dataset(given.data)
    rows = [
        trained(dataset, precision, seed, given)
        for seed in given.seeds
        for precision in given.precisions
    ]
    value = {
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "processor": capability(pick_device(given.device)),
        "preset": given.preset,
        "settings": given.set,
        "horizon": given.horizon,
        "epochs": given.epochs,
        "windows": given.windows,
        "rows": rows,
        "summary": summary(rows),
    }
    if given.out:
        write_json(given.out, value)
    print(json.dumps(value["summary"], indent=1))


if __name__ == "__main__":
    main()
