"""Readings of the paper's distance, beside the authors' training: plans by the energy alone.

The paper normalises observations "along the feature dimension" and takes the L2 norm of the
difference; its margins are 0.01 to 0.1. Three readings of it, and the preset `released`, are
trained at reduced size, in batches of 32 (released for NIV), from weights as PyTorch draws them and
in float32, all else as in their presets. Plans for all validation and all test windows, with the
true task and by exact search, are scored after some epochs. A reading is chosen by the validation
windows alone. Trainings are kept below --work and go on where they were stopped; --gather trains
nothing and scores nothing, and reports the epochs that there are.

    python benchmarks/distances.py DATA --work WORK --out benchmarks/results/distances.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cefito.cli.console import progress, talk
from cefito.data import PreparedDataset, cut_windows, open_dataset
from cefito.data.windows import action_space
from cefito.evaluation.statistics import seed_interval
from cefito.field.energy import EnergyField
from cefito.field.fields import make_field
from cefito.files import write_json
from cefito.planners.cefito.fit import plan_scores, validation_problems
from cefito.planners.methods import load_config
from cefito.runtime import Processes, generator_for, pick_device
from cefito.training.field_loss import FieldLoss
from cefito.training.log import read_metrics
from cefito.training.trainer import TrainingContext

READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "layer norm, L2": ("paper", {"field.distance": "l2", "field.normalisation": "layer"}),
    "unit length, L2": ("paper", {"field.distance": "l2", "field.normalisation": "unit"}),
    "layer norm, mean of squares": (
        "paper",
        {"field.distance": "mean_square", "field.normalisation": "layer"},
    ),
    "released": ("released", {}),
}
MANY = 10**6
METRICS = ("success_rate", "mean_accuracy")


def fit(
    dataset: PreparedDataset, reading: str, seed: int, folder: Path, given: argparse.Namespace
) -> None:
    """Train one field into a folder, with scores on validation and test windows."""
    preset, chosen = READINGS[reading]
    overrides = {
        "training.optimiser.epochs": max(given.epochs),
        "training.stopping.every": min(given.epochs),
        "training.stopping.patience": 0,
        "training.optimiser.batch_size": 32,
        "training.precision": "float32",
        "field.action_encoding": "text",
        "field.width": given.width,
        "field.depth": given.depth,
        "field.heads": given.heads,
        "field.mlp_ratio": 2.0,
        "field.init": "torch",
        **chosen,
    }
    settings: Any = load_config(
        preset, dataset=dataset.name, horizon=given.horizon, overrides=overrides
    ).settings
    train = cut_windows(dataset, horizon=given.horizon, split="train")
    space = action_space(train, settings.search.actions)
    problems = {}
    for split in ("val", "test"):
        windows = cut_windows(dataset, horizon=given.horizon, split=split)
        problems[split] = validation_problems(windows, space, windows=0, candidates=MANY)

    def score(field: EnergyField, group: Processes) -> Mapping[str, float]:
        scores = {}
        for split, (asked, actual) in problems.items():
            found = plan_scores(
                field, group, problems=asked, actual=actual, memory_mib=256, candidates=MANY
            )
            scores |= {f"{split} {metric}": found[metric] for metric in METRICS}
        return scores

    text = None if train.action_text is None else torch.from_numpy(train.action_text).float()
    field = make_field(
        config=settings.field,
        observation_dim=train.initial.shape[1],
        action_count=len(train.taxonomy.actions),
        horizon=given.horizon,
        action_vectors=text,
    )
    assert isinstance(field, EnergyField)
    field.reset(generator_for("cpu", seed, 3))
    field.to(pick_device(given.device))
    actions = dict(enumerate(space.actions))
    loss = FieldLoss(
        field=field, train=train, actions=actions, config=settings.training, score=score
    )
    context = TrainingContext(
        device=given.device, folder=folder, key=dataset.fingerprint, progress=progress
    )
    determining = [settings.field.model_dump(), settings.training.model_dump(), "distances"]
    context.train(reading, loss, settings.training, seed=seed, settings=determining)


def curve(folder: Path, epochs: list[int]) -> dict[str, dict[str, float]]:
    """Scores of a training after each of the epochs that it has reached."""
    path = folder / "metrics.jsonl"
    lines = {line["epoch"]: line for line in read_metrics(path)} if path.exists() else {}
    return {
        str(epoch): {
            name.removeprefix("val_"): value
            for name, value in lines[epoch].items()
            if name.endswith(METRICS)
        }
        for epoch in epochs
        if epoch in lines
    }


def summary(rows: list[dict[str, Any]], epochs: list[int]) -> dict[str, Any]:
    """Means over seeds and their 90 % intervals."""
    value: dict[str, Any] = {}
    for reading in dict.fromkeys(row["reading"] for row in rows):
        value[reading] = {}
        for epoch in map(str, epochs):
            curves = [
                row["scores"][epoch]
                for row in rows
                if row["reading"] == reading and epoch in row["scores"]
            ]
            if not curves:
                continue
            intervals = {name: seed_interval([each[name] for each in curves]) for name in curves[0]}
            value[reading][epoch] = {"seeds": len(curves)} | {
                name: {"mean": found.mean, "half_width_90": found.half_width}
                for name, found in intervals.items()
            }
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path, help="a prepared data set with text embeddings")
    parser.add_argument("--work", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=list(READINGS))
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gather", action="store_true", help="report what there is")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    dataset = open_dataset(given.data)
    rows = []
    for seed in given.seeds:
        for reading in given.readings:
            folder = given.work / f"{reading.replace(', ', '-').replace(' ', '-')}-{seed}"
            if not given.gather:
                fit(dataset, reading, seed, folder, given)
            scores = curve(folder, given.epochs)
            rows.append({"seed": seed, "reading": reading, "scores": scores})
            talk(json.dumps(rows[-1]))
    value = {
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "horizon": given.horizon,
        "field": {"width": given.width, "depth": given.depth, "heads": given.heads},
        "readings": {name: READINGS[name] for name in given.readings},
        "summary": summary(rows, given.epochs),
        "rows": rows,
    }
    if given.out:
        write_json(given.out, value)
    print(json.dumps(value["summary"], indent=1))


if __name__ == "__main__":
    main()
