"""CEFITO beside two simple planners on a prepared data set: several seeds, chosen on validation, scored once on test.

Each seed is trained into its own run folder below --work and resumed from there; its scores are kept there too, so that seeds
can be run side by side and gathered by one more call with all of them. Scores are with the predicted and with
the true task; a window whose task was predicted rightly is not searched again, nor one whose task was predicted wrongly where
none of its annotated actions is allowed for that task, since then no action of its plan can be right.

    python benchmarks/accuracy.py DATASET --horizon 3 --seeds 0 1 2 --out benchmarks/results/NAME.json
    python benchmarks/accuracy.py DATASET --horizon 4 --sample 150 --out benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from cefito.cli.console import progress, talk
from cefito.data import cut_windows, open_dataset
from cefito.data.windows import Windows
from cefito.evaluation import MetricSums, evaluate_planner
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.files import write_json
from cefito.planners import CefitoPlanner, FrequentPlanner, NearestPlanner, Queries
from cefito.planners.run import pick_device, train_run
from cefito.training.config import load_config
from cefito.training.log import read_metrics

T_QUANTILE = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132}  # Student's t at 95 %, by number of seeds


def score_cefito(planner: CefitoPlanner, test: Windows) -> dict[str, Any]:
    """Metrics with the true and with the predicted task, and seconds for each query searched."""
    assert planner.space is not None
    allowed = [set(actions) for actions in planner.space.actions]
    started = time.perf_counter()
    oracle = planner.plan(Queries.from_windows(test, oracle_task=True), 5)
    predicted = planner.predict_tasks(Queries.from_windows(test))
    wrong = np.flatnonzero(predicted != test.tasks)
    again = [int(row) for row in wrong if allowed[predicted[row]] & set(test.actions[row].tolist())]
    plans = [plan.actions for plan in oracle]
    for row in wrong:
        plans[row] = plans[row][:0]  # no plan counts as wrong throughout
    queries = replace(Queries.from_windows(test), tasks=predicted).subset(again)
    for row, plan in zip(again, planner.plan(queries, 5) if again else [], strict=True):
        plans[row] = plan.actions
    seconds = (time.perf_counter() - started) / (len(test) + len(again))
    scores = {}
    for name, found, tasks in (("true task", [plan.actions for plan in oracle], test.tasks),
                               ("predicted task", plans, predicted)):
        sums = MetricSums()
        sums.add(found, test.actions, tasks=tasks, actual_tasks=test.tasks)
        scores[name] = {name: value for name, value in sums.percents().items() if name != "mean_iou_bitwise"}
    leaves = float(np.mean([plan.evaluated.leaves for plan in oracle]))
    return {"scores": scores, "seconds_per_query": seconds, "candidates": leaves, "exact": all(p.exact for p in oracle)}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and half-width of the 90 % interval by Student's t over seeds."""
    result: dict[str, Any] = {}
    for task in runs[0]["scores"]:
        for metric in ("success_rate", "mean_accuracy", "mean_iou", "top_5_success_rate", "task_accuracy"):
            values = [run["scores"][task][metric] for run in runs]
            half = T_QUANTILE[len(values)] * stdev(values) / len(values) ** 0.5 if len(values) in T_QUANTILE else None
            result.setdefault(task, {})[metric] = {"mean": mean(values), "half_width_90": half, "seeds": values}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    dataset = open_dataset(given.dataset)
    overrides = dict(entry.split("=", 1) for entry in given.set)
    config = load_config(given.preset, dataset=dataset.taxonomy.dataset, horizon=given.horizon, overrides=overrides)
    splits = {split: cut_windows(dataset, horizon=given.horizon, split=split) for split in ("train", "val", "test")}
    test = splits["test"].sample(given.sample, SAMPLE_SEED)
    runs: list[dict[str, Any]] = []
    simple: dict[str, Any] = {}
    for seed in given.seeds:
        folder = given.work / f"{dataset.name}-T{given.horizon}-{given.preset}-seed{seed}"
        kept = folder / f"accuracy-{len(test)}.json"
        run = train_run(dataset, folder, config=config, horizon=given.horizon, seed=seed,
                        device=pick_device(given.device), progress=progress)
        lines = read_metrics(folder / "field" / "metrics.jsonl")
        if not kept.exists():
            write_json(kept, {
                "seed": seed, "parameters": run.info["parameters"], "training": run.info["training"],
                **score_cefito(run.planner, test),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})
        runs.append({**json.loads(kept.read_text(encoding="utf-8")),
                     "epoch_seconds": mean(line["train_seconds"] for line in lines),
                     "training_seconds": sum(line["train_seconds"] + line.get("val_seconds", 0) for line in lines)})
        talk(f"seed {seed}: " + json.dumps(runs[-1]["scores"]))
        if not simple:
            for planner in (NearestPlanner(), FrequentPlanner(task_model=run.planner.task_model)):
                planner.fit(splits["train"], splits["val"], seed=seed)
                simple[planner.name] = evaluate_planner(planner, test)[0].to_dict()["metrics"]
        result = {
            "dataset": dataset.name, "fingerprint": dataset.fingerprint, "horizon": given.horizon,
            "test_windows": len(test), "sampled_from": len(splits["test"]), "preset": given.preset,
            "overrides": overrides, "config": config.model_dump(mode="json"), "summary": summary(runs), "runs": runs,
            "simple": simple}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"summary": result["summary"], "simple": simple}, indent=1))


if __name__ == "__main__":
    main()
