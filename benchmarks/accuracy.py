"""Accuracy of CEFITO under several objectives beside two simple methods.

Epochs and weights are chosen on the validation split, scores are of the test split. Each seed is
trained into its own run folder below --work and resumed from there; its scores are kept there too,
so that seeds can be run side by side and gathered by one more call with all of them. Objectives,
searched with the predicted task, the first, the third and the fifth also with the true one:

    energy             the paper's: the energy alone, the likeliest task
    + prior            the energy and the prior over sequences, weights fitted on the validation
                       split, the likeliest task
    + chain            the chain, with the prior and the energy where they improve its plans
    + tasks            the same over as many likely tasks as did best on the validation split
    no energy          the same without the energy, weights fitted without it
    no energy + tasks  the same over several tasks

    python benchmarks/accuracy.py DATASET --horizon 3 --out benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.cli.console import progress, talk
from cefito.data import cut_windows, open_dataset
from cefito.data.windows import Windows
from cefito.evaluation import evaluate_planner
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.evaluation.score import successes
from cefito.evaluation.statistics import paired_difference, seed_interval
from cefito.files import write_json
from cefito.planners.methods import find_method, load_config, method_settings
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.runtime import pick_device
from cefito.search.settings import SearchConfig
from cefito.training.log import read_metrics
from cefito.training.trainer import TrainingContext

METRICS = ("success_rate", "mean_accuracy", "mean_iou", "top_5_success_rate", "task_accuracy")
VARIANTS = {
    "energy": "energy",
    "+ prior": "prior",
    "+ chain": "fitted",
    "+ tasks": "fitted",
    "no energy": "likelihood",
    "no energy + tasks": "likelihood",
}


def objective(trained: SearchConfig, variant: str, method: str) -> SearchConfig:
    """Settings of a search that minimises one of the objectives."""
    return trained.model_copy(
        update={
            "objective": VARIANTS[variant],
            "method": method,
            "tasks": 0 if variant.endswith("tasks") else 1,
        }
    )


def score(
    folder: Path, test: Windows, method: str, exact_energy: bool, result: dict[str, Any]
) -> dict[str, Any]:
    """Metrics of every objective that `result` lacks, and the success of each window."""
    run = open_run(folder)
    assert run.trained_search is not None
    for variant in VARIANTS:
        for oracle in (False, True):
            name = f"{variant}, {'true' if oracle else 'predicted'} task"
            if name in result or (oracle and (variant == "+ prior" or variant.endswith("tasks"))):
                continue
            how = "exhaustive" if exact_energy and variant == "energy" else method
            planner = run.planner.with_search(objective(run.trained_search, variant, how))
            evaluation, plans = evaluate_planner(
                planner, test, oracle_task=oracle, progress=progress
            )
            description = planner.describe()
            result[name] = {
                **{metric: evaluation.metrics[metric] for metric in METRICS},
                "exact": evaluation.exact,
                "seconds_per_query": evaluation.seconds_per_query,
                "leaves_per_query": evaluation.leaves_per_query,
                "token_forwards_per_query": evaluation.token_forwards_per_query,
                "weights": description.weights,
                "tasks": description.tasks,
                "success": successes(plans, test).astype(int).tolist(),
            }
    return result


def difference(
    first: NDArray[np.float64], second: NDArray[np.float64], video: NDArray[np.int64]
) -> dict[str, Any]:
    """Difference of success rates [seeds, N], with intervals over seeds and over videos."""
    paired = paired_difference(first, second, video)
    assert paired.seeds is not None
    return {
        "mean": paired.mean,
        "half_width_90": paired.seeds.half_width,
        "seeds": list(paired.seeds.values),
        "bootstrap_90": [paired.low, paired.high],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--search", default="guided", help="how objectives are searched")
    parser.add_argument(
        "--exact-energy", action="store_true", help="search the energy alone exhaustively"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    dataset = open_dataset(given.dataset)
    overrides = dict(entry.split("=", 1) for entry in given.set)
    config = load_config(
        given.preset, dataset=dataset.taxonomy.dataset, horizon=given.horizon, overrides=overrides
    )
    splits = {
        split: cut_windows(dataset, horizon=given.horizon, split=split)
        for split in ("train", "val", "test")
    }
    test = splits["test"].sample(given.sample, SAMPLE_SEED)
    runs: list[dict[str, Any]] = []
    simple: dict[str, Any] = {}
    for seed in given.seeds:
        folder = given.work / f"{dataset.name}-T{given.horizon}-{given.preset}-seed{seed}"
        run = train_run(
            dataset,
            folder,
            config=config,
            horizon=given.horizon,
            seed=seed,
            device=pick_device(given.device),
            progress=progress,
        )
        lines = read_metrics(folder / "field" / "metrics.jsonl")
        kept = (
            folder
            / f"accuracy-{len(test)}-{given.search}{'-exact' if given.exact_energy else ''}.json"
        )
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        write_json(kept, score(folder, test, given.search, given.exact_energy, known))
        scores = json.loads(kept.read_text(encoding="utf-8"))
        runs.append(
            {
                "seed": seed,
                "parameters": run.info.parameters,
                "training": run.info.training,
                "epoch_seconds": mean(line["train_seconds"] for line in lines),
                "scores": scores,
            }
        )
        talk(
            f"seed {seed}: "
            + json.dumps({name: round(value["success_rate"], 2) for name, value in scores.items()})
        )
        if not simple:
            # the task classifier, which is trained already, is taken from the run folder
            context = TrainingContext(
                device=pick_device(given.device), folder=folder, key=dataset.fingerprint
            )
            for name in ("nearest", "frequent"):
                method = find_method(name)
                planner = method.planner.fit(
                    splits["train"],
                    splits["val"],
                    settings=method_settings(name, config.sections, place="settings"),
                    seed=seed,
                    context=context,
                ).planner
                simple[planner.name] = evaluate_planner(planner, test)[0].metrics
    summary: dict[str, Any] = {}
    against: dict[str, Any] = {}
    for name in runs[0]["scores"]:
        values = {metric: [run["scores"][name][metric] for run in runs] for metric in METRICS}
        summary[name] = {
            metric: {
                "mean": mean(part),
                "half_width_90": seed_interval(part).half_width,
                "seeds": part,
            }
            for metric, part in values.items()
        }
        base = "energy, true task" if "true" in name else "energy, predicted task"
        if name != base:
            success = [
                np.array([run["scores"][key]["success"] for run in runs], dtype=float)
                for key in (name, base)
            ]
            against[f"{name}, less {base}"] = difference(success[0], success[1], test.video)
    for run in runs:
        for value in run["scores"].values():
            del value["success"]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(
        json.dumps(
            {
                "dataset": dataset.name,
                "fingerprint": dataset.fingerprint,
                "horizon": given.horizon,
                "test_windows": len(test),
                "sampled_from": len(splits["test"]),
                "preset": given.preset,
                "overrides": overrides,
                "search": given.search,
                "exact_energy": given.exact_energy,
                "config": config.model_dump(mode="json"),
                "summary": summary,
                "success_rate_differences": against,
                "runs": runs,
                "simple": simple,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    print(
        json.dumps(
            {
                "summary": {
                    name: {metric: round(part["mean"], 2) for metric, part in value.items()}
                    for name, value in summary.items()
                },
                "differences": against,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
