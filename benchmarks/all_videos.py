"""What a final training on all videos that are not test is worth, by folds of videos.

Each fold is held out; the others' training and validation videos are what a data set gives. Shares
of the epochs that networks are trained further, on both together, are compared with none: success
rate, log-likelihood of the truth and calibration, with 90 % intervals, videos resampled.

    python benchmarks/all_videos.py DATA --out FILE [--planner chain] [--shares 0.25 0.5]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.cli.console import talk
from cefito.data import open_dataset
from cefito.evaluation.score import calibration
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.methods import METHODS, load_config
from chain_parts import LEAST, Folds, Reals, interval

KEYS = {"chain": "chain_training.all_videos", "viterbi": "viterbi.training.all_videos"}


def scored(folds: Folds, share: float, given: argparse.Namespace) -> dict[str, Reals]:
    """Scores of all windows [S, N], with each seed; `seconds` [S]."""
    config = load_config(
        "small",
        method=given.planner,
        dataset=folds.data.name,
        horizon=given.horizon,
        overrides={KEYS[given.planner]: share},
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
            plans = planner.plan(queries, 1)
            best = np.stack([one.actions[0] for one in plans])
            found["success"][seed, inside] = (best == held.actions).all(axis=1)
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
        "seconds": float(found["seconds"].mean()),
    }
    if found["sure"].any():
        value["log_likelihood"] = float(found["likelihood"].mean())
        value["gain of log_likelihood"] = interval(found["likelihood"] - none["likelihood"], video)
        for name, right, sure in (
            ("plans", "success", "sure"),
            ("tasks", "task_right", "task_sure"),
        ):
            errors = [
                calibration(own, true == 1)
                for own, true in zip(found[sure], found[right], strict=True)
            ]
            value[name] = {
                "calibration_error": float(
                    np.mean([one.expected_calibration_error for one in errors])
                ),
                "by chance": float(np.mean([one.chance_calibration_error for one in errors])),
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
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    folds = Folds.of_data(open_dataset(given.data), given)
    value: dict[str, Any] = {
        "command": "python benchmarks/all_videos.py DATA",
        "arguments": {
            name: part for name, part in vars(given).items() if name not in ("data", "out")
        },
        "dataset": {"name": folds.data.name, "fingerprint": folds.data.fingerprint},
        "shares": {},
    }
    none = scored(folds, 0.0, given)
    for share in (0.0, *given.shares):
        found = scored(folds, share, given) if share else none
        value["shares"][str(share)] = summary(found, none, folds)
        talk(f"{share}: {value['shares'][str(share)]}")
        if given.out:
            write_json(given.out, value)


if __name__ == "__main__":
    main()
