"""How many threads are best where, and whether work is better done side by side.

A training step of the `paper` and of the `small` size and an exact search of a `paper`-size field
are repeated by one process on several threads, and by several processes on one thread each. Rates
are of all processes together, on the wall: nothing else should run on the machine.

    python benchmarks/threads.py --threads 1 2 --out benchmarks/results/threads.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.cli.console import talk
from cefito.field.fields import IncrementalField
from cefito.files import write_json
from cefito.planners.methods import load_config
from cefito.runtime import capability, resolve
from cefito.search import ExhaustiveSearch
from search import random_field, random_problem
from training import library_step, make_windows

SMALL = {
    "field.width": 96,
    "field.depth": 2,
    "field.heads": 4,
    "field.mlp_ratio": 2.0,
}  # the sizes of `small`, one direction


def training_step(batch: int, settings: dict[str, Any]) -> Callable[[], object]:
    """A step in the precision that `auto` comes to."""
    config = load_config("paper", overrides=settings).settings
    windows = make_windows(batch, np.random.default_rng(0))
    place = torch.device("cpu")
    step, _ = library_step(windows, config, place, resolve("auto", place))
    return step


def exact_search(horizon: int, size: int, settings: dict[str, Any]) -> Callable[[], object]:
    """A search as `auto` screens."""
    field = IncrementalField(random_field(horizon, torch.device("cpu"), settings=settings))
    problem, search = random_problem(size), ExhaustiveSearch(screening="auto")
    return lambda: search.search(field, [problem], 5)


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "step of paper": lambda: training_step(128, {}),
    "step of small": lambda: training_step(32, SMALL),
    "search of paper": lambda: exact_search(3, 11, {}),
}


def repeat(case: str, threads: int, seconds: float) -> tuple[int, float]:
    """How often, and in how many seconds, a case was done; the first time warms up."""
    torch.set_num_threads(threads)
    work = CASES[case]()
    work()
    count, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds or not count:
        work()
        count += 1
    return count, taken


def rate(case: str, workers: int, threads: int, seconds: float) -> float:
    """Repetitions a second of all workers together."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        done = pool.starmap(repeat, [(case, threads, seconds)] * workers, chunksize=1)
    return sum(count / taken for count, taken in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for case in given.cases:
        for threads in given.threads:
            alone = rate(case, 1, threads, given.seconds)
            beside = rate(case, threads, 1, given.seconds) if threads > 1 else alone
            rows.append(
                {
                    "case": case,
                    "threads": threads,
                    "one_worker_per_second": alone,
                    "as_many_workers_per_second": beside,
                }
            )
            talk(json.dumps(rows[-1]))
    value = {
        "bfloat16_by": capability("cpu"),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "rows": rows,
    }
    if given.out:
        write_json(given.out, value)
    print(json.dumps(value, indent=1))


if __name__ == "__main__":
    main()
