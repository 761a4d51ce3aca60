"""Peak memory of `cefito evaluate` on many queries, for tasks of few and of many actions.

A simulated data set of six tasks is made for each number of actions, and a `small` run trained on
it for one epoch: how good its plans are does not matter here. `cefito evaluate` is then run in a
process of its own, whose largest resident memory the system tells. It searches two tasks a query by
the energy, guided by the prior, whose tables are what large tasks take memory for.

    python benchmarks/memory.py --work WORK --out benchmarks/results/memory.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.cli.console import talk
from cefito.data import write_dataset
from cefito.data.annotations import Action, Annotations, Step, Task, Taxonomy, Video
from cefito.data.simulation.observations import ObservationKnobs, observe

TASKS, TRAINING_STEPS, TEST_WINDOWS = 6, 20, 20  # videos of so many steps, windows a test video
ALLOWED_MIB = 300  # beside the bound: Python, torch, the data set and its windows
QUICK = {
    "training.optimiser.epochs": 1,
    "training.stopping.every": 1,
    "training.stopping.windows": 10,
    "chain_training.optimiser.epochs": 1,
    "chain_training.stopping.windows": 10,
    "search.fitting_windows": 20,
}
MEASURED = """
import resource, sys
from cefito.cli import main
code = main()
print("peak KiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def annotations(actions: int, horizon: int, queries: int, seed: int) -> Annotations:
    """Tasks of so many actions of their own, all of which occur in training videos."""
    generator = np.random.default_rng(seed)
    count = TASKS * actions
    names = tuple(Action(id=number, name=f"action {number}") for number in range(count))
    owned = np.arange(count).reshape(TASKS, actions)
    tasks = tuple(
        Task(id=number, name=f"task {number}", actions=tuple(row))
        for number, row in enumerate(owned.tolist())
    )
    videos: list[Video] = []

    def add(split: str, task: int, steps: list[int]) -> None:
        placed = tuple(Step(2.0 * n, 2.0 * n + 1, action) for n, action in enumerate(steps))
        videos.append(Video(f"{split} {len(videos)}", split, task, placed))

    for task in range(TASKS):
        for _ in range(max(6, 2 * actions // TRAINING_STEPS) // 2):
            order = generator.permutation(np.resize(owned[task], 2 * TRAINING_STEPS))
            add("train", task, order[:TRAINING_STEPS].tolist())
            add("train", task, order[TRAINING_STEPS:].tolist())
        for part in np.array_split(generator.permutation(owned[task]), -(-actions // 20)):
            add("train", task, [*part.tolist(), *part[:horizon].tolist()])
        add("val", task, generator.choice(owned[task], size=horizon + 2).tolist())
    for number in range(queries // TEST_WINDOWS):
        steps = generator.choice(owned[number % TASKS], size=TEST_WINDOWS + horizon - 1)
        add("test", number % TASKS, steps.tolist())
    taxonomy = Taxonomy(dataset=f"{actions} actions a task", tasks=tasks, actions=names)
    return Annotations(taxonomy=taxonomy, videos=tuple(videos))


def cefito(*arguments: object, measured: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, on one thread."""
    start = MEASURED if measured else "import sys; from cefito.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", start, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"cefito {arguments[0]}: {done.stderr}")
    return done


def measure(
    work: Path, actions: int, horizon: int, queries: int, bounds: list[float], dim: int
) -> list[dict[str, Any]]:
    """One row for each bound."""
    data, run = work / f"data-{actions}-{horizon}", work / f"run-{actions}-{horizon}"
    if not data.exists():
        made = annotations(actions, horizon, queries, seed=0)
        start, end = observe(made, ObservationKnobs(), dim=dim, seed=0)
        write_dataset(
            data,
            name=f"{actions} actions a task (simulated)",
            annotations=made,
            start=start,
            end=end,
            provenance={"observations": "simulated", "generator": "benchmarks/memory.py"},
        )
    settings = [part for name, value in QUICK.items() for part in ("--set", f"{name}={value}")]
    cefito("train", data, "--preset", "small", "--horizon", horizon, "--out", run, *settings)
    rows = []
    for bound in bounds:
        done = cefito(
            *("evaluate", run, "--json", "--memory-mib", bound, "--tasks", 2, "--proposals", 4),
            *("--objective", "energy"),
            measured=True,
        )
        scores = json.loads(done.stdout)
        peak = int(done.stderr.rsplit("peak KiB", 1)[1].split()[0]) / 2**10
        rows.append(
            {
                "actions": actions,
                "horizon": horizon,
                "queries": scores["windows"],
                "memory_mib": bound,
                "peak_mib": round(peak, 1),
                "allowed_mib": bound + ALLOWED_MIB,
                "within": peak <= bound + ALLOWED_MIB,
                "seconds_per_query": scores["seconds_per_query"],
            }
        )
        talk(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for data sets and runs")
    parser.add_argument("--actions", type=int, nargs="+", default=[7, 60])
    parser.add_argument("--horizons", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--bounds", type=float, nargs="+", default=[64, 256, 1024], help="MiB")
    parser.add_argument("--dim", type=int, default=512, help="features of an observation")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory.json"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = [
        row
        for actions in arguments.actions
        for horizon in arguments.horizons
        for row in measure(
            arguments.work, actions, horizon, arguments.queries, arguments.bounds, arguments.dim
        )
    ]
    result = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "features": arguments.dim,
        "tasks": TASKS,
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
