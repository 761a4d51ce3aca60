"""Gradient search beside guided search on a trained run: energies reached for the operations spent.

The objective is the energy alone and the task is the true one, so that only the search is judged;
queries are validation windows. Each search runs with the prior over sequences as guide and without
any guide. "hits" is the share of queries whose energy is the lowest that any of the searches found,
"gap" the mean distance from it. Token forwards are those of `Effort`: a token forward and back
counts threefold. Where a search of everything is affordable, add --exhaustive.

    python benchmarks/gradient.py RUN --queries 48 > benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from cefito.data import cut_windows
from cefito.field import IncrementalField
from cefito.planners.run import open_run
from cefito.search import ExhaustiveSearch, GradientSearch, GuidedSearch, Problem, Search

HIT = 1e-5  # difference of energies that float rounding explains


def searches(*, exhaustive: bool) -> dict[str, Search]:
    found: dict[str, Search] = {
        f"guided, {proposals} proposals, {starts} starts": GuidedSearch(
            proposals=proposals, starts=starts
        )
        for proposals, starts in ((128, 1), (128, 8), (128, 64), (2048, 8))
    }
    found |= {
        f"gradient, {restarts} restarts, {steps} steps": GradientSearch(
            restarts=restarts, steps=steps
        )
        for restarts, steps in ((8, 0), (2, 4), (8, 20), (8, 60), (32, 60))
    }
    return {**found, "exhaustive": ExhaustiveSearch()} if exhaustive else found


def measured(field: IncrementalField, problems: list[Problem], search: Search) -> dict[str, Any]:
    started = time.process_time()
    plans = search.search(field, problems, 1)
    seconds = time.process_time() - started
    return {
        "energies": [float(one.energies[0]) for one in plans],
        "cpu_seconds": seconds / len(problems),
        "token_forwards": mean(one.evaluated.token_forwards for one in plans),
        "leaves": mean(one.evaluated.leaves for one in plans),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--dataset", type=Path, help="where the run's data set lies now")
    parser.add_argument("--queries", type=int, default=48)
    parser.add_argument("--exhaustive", action="store_true", help="search everything too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run = open_run(given.run)
    planner = run.planner
    assert planner.field is not None
    assert planner.hypotheses is not None
    space, prior, horizon = (
        planner.hypotheses.space,
        planner.hypotheses.prior,
        planner.field.horizon,
    )
    val = cut_windows(run.dataset(given.dataset), horizon=horizon, split="val").sample(
        given.queries, 0
    )
    field = IncrementalField(planner.field)
    result: list[dict[str, Any]] = []
    for guide in ("prior", "none"):
        problems = [
            Problem(
                initial=val.initial[row],
                goal=val.goal[row],
                actions=tuple(space.actions[task]),
                guide=prior.chain(int(task), horizon) if guide == "prior" else None,
            )
            for row, task in enumerate(val.tasks)
        ]
        result += [
            {"guide": guide, "search": name, **measured(field, problems, search)}
            for name, search in searches(exhaustive=given.exhaustive).items()
        ]
    least = np.min([entry["energies"] for entry in result], axis=0)
    for entry in result:
        energies = np.array(entry.pop("energies"))
        entry |= {
            "energy": energies.mean(),
            "gap": (energies - least).mean(),
            "hits": float((energies <= least + HIT).mean()),
        }
    print(
        json.dumps(
            {
                "dataset": val.dataset,
                "horizon": horizon,
                "queries": len(val),
                "split": "val",
                "actions": mean(len(space.actions[task]) for task in val.tasks),
                "searches": result,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
