"""Plans of unknown length, without a goal and after steps done: accuracy on a data set.

Trains a run of all lengths from --steps for each seed (below --work, resumed or reused) and, with
--single, chains of single horizons; scores both on all windows of a split. Choices are made on
`--split val`; the test split is scored once.

    python benchmarks/any_length.py DATA --work WORK --seeds 3 --single 3 4 --split test --out FILE
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

import common
from cefito.cli.console import progress
from cefito.data import Windows, cut_windows, open_dataset
from cefito.evaluation.statistics import seed_interval
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.methods import load_config
from cefito.planners.simple.planners import NearestPlanner
from cefito.runs.run import Run
from cefito.runs.train import train_run

Plan = list[int]


def scores(plans: list[Plan], windows: Windows) -> dict[str, Any]:
    """Scores in per cent, as means over lengths, with the success rate of each."""
    actual = [
        row[:size].tolist() for row, size in zip(windows.actions, windows.lengths, strict=True)
    ]
    pairs = list(zip(plans, actual, strict=True))
    values = {
        "success_rate": [ours == theirs for ours, theirs in pairs],
        "edit_similarity": [Levenshtein.normalized_similarity(*pair) for pair in pairs],
        "next_step_accuracy": [ours[:1] == theirs[:1] for ours, theirs in pairs],
        "length_accuracy": [len(ours) == len(theirs) for ours, theirs in pairs],
    }
    lengths = np.unique(windows.lengths)
    by_length = {
        name: [
            100 * float(np.mean(np.array(rows)[windows.lengths == length])) for length in lengths
        ]
        for name, rows in values.items()
    }
    return {
        **{name: float(np.mean(rows)) for name, rows in by_length.items()},
        "success_rate_of_all_windows": 100 * float(np.mean(values["success_rate"])),
        "edit_similarity_of_all_windows": 100 * float(np.mean(values["edit_similarity"])),
        "success_rate_by_length": dict(
            zip(map(str, lengths), by_length["success_rate"], strict=True)
        ),
    }


def best(planner: Any, queries: Queries) -> list[Plan]:
    return [found.sequences[0].tolist() for found in planner.plan(queries, 1)]


def given_length(planner: Any, windows: Windows, ask: Callable[[Windows], Queries]) -> list[Plan]:
    """Plans of every window's own length."""
    plans: dict[int, Plan] = {}
    for length in np.unique(windows.lengths):
        rows = np.flatnonzero(windows.lengths == length)
        part = best(planner.with_lengths(length, length), ask(windows.of_length(length)))
        plans |= dict(zip(rows.tolist(), part, strict=True))
    return [plans[row] for row in range(len(windows))]


def predicted(planner: Any, windows: Windows, lengths: NDArray[np.int64]) -> list[Plan]:
    """Plans of lengths [N] that another model predicts."""
    plans: dict[int, Plan] = {}
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        queries = Queries.from_windows(windows.subset(rows))
        part = best(planner.with_lengths(int(length), int(length)), queries)
        plans |= dict(zip(rows.tolist(), part, strict=True))
    return [plans[row] for row in range(len(windows))]


def nearest(train: Windows, windows: Windows) -> list[Plan]:
    """The plan of the nearest training window of any length."""
    planner = NearestPlanner.fit(train, train, settings=None, seed=0).planner
    return best(planner, Queries.from_windows(windows))


def score_run(run: Run, train: Windows, windows: Windows) -> dict[str, Any]:
    planner: Any = run.planner
    found: dict[str, Any] = {}
    kinds: dict[str, dict[str, bool]] = {
        "goal": {},
        "goal, steps done": {"after_done": True},
        "no goal": {"without_goal": True},
        "no goal, steps done": {"without_goal": True, "after_done": True},
    }
    for name, given in kinds.items():
        for task in (False, True):
            kind = name + ", true task" * task

            def ask(part: Windows, task: bool = task, given: dict[str, bool] = given) -> Queries:
                return Queries.from_windows(part, oracle_task=task, **given)

            found[f"length given, {kind}"] = scores(given_length(planner, windows, ask), windows)
            if task or "no goal" in name:
                continue
            found[f"length unknown, {kind}"] = scores(best(planner, ask(windows)), windows)
    queries = Queries.from_windows(windows)
    by_edit = replace(planner, edit=True)
    found["length unknown, goal, ranked by edit"] = scores(best(by_edit, queries), windows)
    if windows.elapsed is not None:
        timed = Queries.from_windows(windows, with_elapsed=True)
        found["length unknown, goal, seconds"] = scores(best(planner, timed), windows)
        plans = best(by_edit, timed)
        found["length unknown, goal, seconds, ranked by edit"] = scores(plans, windows)
    alone = {
        length: scores(best(planner.with_lengths(length, length), queries), windows)
        for length in planner.lengths
    }
    length = max(alone, key=lambda length: alone[length]["success_rate"])
    found["one length for all, the best"] = {"steps": int(length), **alone[length]}
    common = int(np.bincount(train.lengths).argmax())
    found["the commonest length"] = {"steps": common, **alone[common]}
    plans = nearest(train, windows)
    found["nearest window"] = scores(plans, windows)
    sizes = np.array([len(plan) for plan in plans])
    found["length of the nearest window"] = scores(predicted(planner, windows, sizes), windows)
    return found


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--split", default="val")
    parser.add_argument("--steps", type=int, nargs=2, default=(1, 6))
    parser.add_argument("--single", type=int, nargs="*", default=[])
    common.add_settings(parser)
    given = parser.parse_args()
    shortest, longest = given.steps
    dataset = open_dataset(given.data)
    train, windows = (
        cut_windows(dataset, horizon=longest, shortest=shortest, split=split)
        for split in ("train", given.split)
    )
    rows: dict[str, list[dict[str, Any]]] = {}
    for seed in range(given.seeds):
        overrides = common.settings(given.set)
        config = load_config(
            "small", method="any-length", dataset=dataset.name, horizon=longest, overrides=overrides
        )
        run = train_run(
            dataset,
            given.work / f"seed{seed}",
            config=config,
            horizon=longest,
            shortest=shortest,
            seed=seed,
            progress=progress,
            reuse=True,
        )
        for name, found in score_run(run, train, windows).items():
            rows.setdefault(name, []).append(found)
        for horizon in given.single:
            config = load_config("small", method="chain", dataset=dataset.name, horizon=horizon)
            single = train_run(
                dataset,
                given.work / f"T{horizon}-seed{seed}",
                config=config,
                horizon=horizon,
                seed=seed,
                progress=progress,
                reuse=True,
            )
            part = windows.of_length(horizon)
            plans = best(single.planner, Queries.from_windows(part))
            rows.setdefault(f"chain of T = {horizon} alone", []).append(scores(plans, part))
    report = {
        "command": "python benchmarks/any_length.py",
        "dataset": dataset.name,
        "split": given.split,
        "steps": [shortest, longest],
        "windows": len(windows),
        "settings": given.set,
        "seeds": given.seeds,
        "rows": {name: summary(parts) for name, parts in rows.items()},
    }
    if given.out is not None:
        write_json(given.out, report)
    for name, row in report["rows"].items():
        shown = {
            key: value["mean"] if isinstance(value, dict) and "mean" in value else value
            for key, value in row.items()
        }
        print(
            name,
            json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in shown.items()}),
        )


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, with the half-widths of 90 % intervals by Student's t."""
    merged: dict[str, Any] = {}
    for name, value in parts[0].items():
        if isinstance(value, dict):
            merged[name] = {
                key: round(float(np.mean([part[name][key] for part in parts])), 2) for key in value
            }
        elif isinstance(value, float):
            interval = seed_interval([part[name] for part in parts])
            merged[name] = {
                "mean": round(interval.mean, 2),
                "half_width": None
                if interval.half_width is None
                else round(interval.half_width, 2),
            }
        else:
            merged[name] = [part[name] for part in parts]
    return merged


if __name__ == "__main__":
    main()
