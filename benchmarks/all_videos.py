"""What a final training on all videos that are not test is worth, by folds of videos.

Each fold is held out; the others' training and validation videos are what a data set gives. Shares
of the epochs that networks are trained further, on both together, are compared with none: success
rate, log-likelihood of the truth and calibration, with 90 % intervals, videos resampled.

    python benchmarks/all_videos.py DATA --out FILE [--planner chain] [--shares 0.25 0.5]
    python benchmarks/all_videos.py DATA --out FILE --planner any-length --steps 1 6

Plans of any-length runs are of the number of steps of their window; the likelihood is that of all
numbers of steps. With --set, all shares are also compared under these settings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.cli.console import talk
from cefito.data import Windows, open_dataset
from cefito.evaluation.calibration import calibration
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.methods import METHODS, load_config
from cefito.search.problem import Plans
from chain_parts import LEAST, Folds, Reals, interval

KEYS = {
    "chain": "chain_training.all_videos",
    "cefito": "chain_training.all_videos",
    "viterbi": "viterbi.training.all_videos",
    "any-length": "any_length_training.all_videos",
}


def planned(planner: Any, held: Windows) -> list[Plans]:
    """Best plans of windows, of their own lengths."""
    if not planner.abilities.any_length:
        return list(planner.plan(Queries.from_windows(held), 1))
    found: dict[int, Plans] = {}
    for length in np.unique(held.lengths).tolist():
        queries = Queries.from_windows(held.of_length(length))
        rows = np.flatnonzero(held.lengths == length).tolist()
        found |= zip(rows, planner.with_lengths(length, length).plan(queries, 1), strict=True)
    return [found[row] for row in range(len(held))]


def scored(
    folds: Folds, share: float, changes: Sequence[str], given: argparse.Namespace
) -> dict[str, Reals]:
    """Scores of all windows [S, N], with each seed; `seconds` [S]."""
    config = load_config(
        "small",
        method=given.planner,
        dataset=folds.data.name,
        horizon=given.horizon,
        overrides=dict(change.split("=", 1) for change in changes) | {KEYS[given.planner]: share},
    )
    names = ("success", "likelihood", "sure", "task_right", "task_sure")
    found = {name: np.zeros((given.seeds, len(folds.windows))) for name in names}
    found["seconds"] = np.zeros(given.seeds)
    for seed in range(given.seeds):
        began = time.process_time()
        for fold in range(given.folds):
            train, val, held = folds.parts(fold)
            inside, queries = folds.of == fold, Queries.from_windows(held)
            planner: Any = (
                METHODS[given.planner]
                .planner.fit(train, val, settings=config.settings, seed=seed)
                .planner
            )
            plans = planned(planner, held)
            found["success"][seed, inside] = [
                one.sequences[0].tolist() == row[:size].tolist()
                for one, row, size in zip(plans, held.actions, held.lengths, strict=True)
            ]
            if given.planner == "any-length":
                logs = planner.log_probabilities(queries, held.actions)
                found["likelihood"][seed, inside] = logs.clip(min=LEAST)
            if given.planner != "chain":
                continue
            found["sure"][seed, inside] = [one.probabilities[0] for one in plans]
            logs = planner.model.scores(queries).log_sequence_probabilities(
                torch.from_numpy(held.actions)
            )
            found["likelihood"][seed, inside] = logs.double().numpy().clip(min=LEAST)
            tasks = np.exp(planner.model.log_tasks(queries))
            found["task_right"][seed, inside] = tasks.argmax(axis=1) == held.tasks
            found["task_sure"][seed, inside] = tasks.max(axis=1)
        found["seconds"][seed] = time.process_time() - began
    return found


def summary(found: dict[str, Reals], none: dict[str, Reals], folds: Folds) -> dict[str, Any]:
    """Means in per cent, gains over no further training, and errors of calibration."""
    video = folds.windows.video
    value: dict[str, Any] = {
        "success_rate": 100 * float(found["success"].mean()),
        "gain of success_rate": interval(100 * (found["success"] - none["success"]), video),
    }
    if "seconds" in found:
        value["seconds"] = float(found["seconds"].mean())
    if found["likelihood"].any():
        value["log_likelihood"] = float(found["likelihood"].mean())
        value["gain of log_likelihood"] = interval(found["likelihood"] - none["likelihood"], video)
    if found["sure"].any():
        for name, right, sure in (
            ("plans", "success", "sure"),
            ("tasks", "task_right", "task_sure"),
        ):
            errors = [
                calibration(own, true == 1, videos=video)
                for own, true in zip(found[sure], found[right], strict=True)
            ]
            value[name] = {
                "calibration_error": float(
                    np.mean([one.expected_calibration_error for one in errors])
                ),
                "by chance": float(np.mean([one.chance_calibration_error for one in errors])),
                "p": float(np.mean([one.calibration_p_value for one in errors])),
                "sure less right": 100 * float((found[sure] - found[right]).mean()),
            }
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--planner", choices=list(KEYS), default="chain")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.25, 0.5])
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs=2, help="shortest and longest, for any-length")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    shortest, given.horizon = given.steps or (None, given.horizon)
    folds = Folds.of_data(open_dataset(given.data), given, shortest=shortest)
    value: dict[str, Any] = {
        "command": "python benchmarks/all_videos.py DATA",
        "arguments": {
            name: part for name, part in vars(given).items() if name not in ("data", "out")
        },
        "dataset": {"name": folds.data.name, "fingerprint": folds.data.fingerprint},
        "shares": {},
    }
    none = None
    for changes, share in product([[], given.set] if given.set else [[]], (0.0, *given.shares)):
        found = scored(folds, share, changes, given)
        none = none or found
        name = ", ".join([str(share), *changes])
        value["shares"][name] = summary(found, none, folds)
        talk(f"{name}: {value['shares'][name]}")
        if given.out:
            write_json(given.out, value)


if __name__ == "__main__":
    main()
