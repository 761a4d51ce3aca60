"""Time and memory as work grows: queries, tasks, steps of a plan, training windows.

Everything is random or simulated, and planned by the chain with a narrow encoder, so that what
grows is not hidden by the products of the encoder. Every point is measured in a process of its own
on one thread: CPU seconds, and how much the largest resident memory exceeded that before the work.
A straight line is fitted through the points of each part by least squares of relative errors.
Workers are compared by seconds on the wall, the only figures here that other work disturbs.

    python benchmarks/scale.py --out benchmarks/results/scale.json
    python benchmarks/scale.py --quick --out scale.json
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.batch.batch import plan_batch
from cefito.cli.console import talk
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import Windows
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.chain.method import ChainConfig, ChainTrainingConfig
from cefito.planners.chain.model import ChainModel
from cefito.planners.chain.network import ChainLoss, ChainNetwork
from cefito.planners.chain.planner import ChainPlanner
from cefito.planners.chain.states import TaskStates, smoothed_transitions
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.runtime import generator_for
from cefito.training.settings import OptimiserConfig, StoppingConfig
from cefito.training.trainer import Training

NARROW = {"hidden": 64, "width": 64}
FEATURES, OWN, TOP, ASKED, BATCH = 64, 10, 5, 512, 256  # OWN: actions of a task
REPEATS = 2  # of executors, in turn
# actions in common: each task draws its actions, and each action is one of about five tasks
SHARED = 5


@contextmanager
def measured(found: dict[str, float]) -> Iterator[None]:
    """Note seconds, CPU seconds and the growth of the largest resident memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the largest memory from now on
    before, started, began = _status("VmRSS"), time.perf_counter(), time.process_time()
    yield
    found["seconds"] = round(time.perf_counter() - started, 4)
    found["cpu_seconds"] = round(time.process_time() - began, 4)
    found["memory_mib"] = round(_status("VmHWM") - before, 1)


def _status(name: str) -> float:
    """A line of the system's status of this process, in MiB."""
    with Path("/proc/self/status").open() as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def apart(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function in a process that does nothing else, on one thread."""
    with multiprocessing.get_context("spawn").Pool(1, torch.set_num_threads, (1,)) as pool:
        row = pool.apply(function, arguments)
    talk(json.dumps(row))
    return row


def line(rows: Sequence[dict[str, Any]], by: str, what: str = "cpu_seconds") -> dict[str, float]:
    """The line start + each · n through the points, and the largest relative distance from it."""
    sizes, values = (np.array([row[name] for row in rows], dtype=float) for name in (by, what))
    parts = np.stack([np.ones_like(sizes), sizes], axis=1)
    start, each = np.linalg.lstsq(parts / values[:, None], np.ones_like(sizes), rcond=None)[0]
    away = (start + each * sizes) / values - 1
    return {"start": float(start), "each": float(each), "away": float(np.abs(away).max())}


# Queries: plan-batch with a run on the simulated world


def made_run(work: Path, dim: int) -> Path:
    """A run of the chain, trained for two epochs on a simulated world."""
    run = work / "run"
    if not (run / "manifest.json").exists():
        world = write_world(work / "world", knobs=WorldKnobs(dim=dim))
        overrides = {f"chain.{name}": value for name, value in NARROW.items()}
        overrides |= {"chain.members": 1, "chain_training.optimiser.epochs": 2}
        config = load_config(
            "small", method="chain", dataset="synthetic", horizon=3, overrides=overrides
        )
        train_run(world, run, config=config, horizon=3, seed=0)
    return run


def list_queries(path: Path, count: int, dim: int) -> Path:
    """A table of random observations."""
    generator = np.random.default_rng(0)
    parts = (
        {
            name: list(generator.standard_normal((size, dim), dtype=np.float32))
            for name in ("initial", "goal")
        }
        for _, size in common.groups(count)
    )
    return common.write_table(path, parts)


def plan_list(run: Path, queries: Path, count: int, executor: str, workers: int) -> dict[str, Any]:
    """Plan a table; CPU seconds are of this process alone, and apart those of its children."""
    row: dict[str, Any] = {"queries": count, "executor": executor, "workers": workers}
    opened, out = open_run(run), queries.with_suffix(f".{executor}-{workers}.jsonl")
    before = os.times()
    with measured(row):
        done = plan_batch(opened, queries, out, executor=executor, workers=workers)
    if executor == "processes":
        after = os.times()
        row["workers_cpu_seconds"] = round(sum(after[2:4]) - sum(before[2:4]), 4)
    if done.problems or done.counts.queries != count:
        raise RuntimeError(f"{queries}: {done}")
    row["mib_read"] = round(queries.stat().st_size / 2**20, 2)
    row["mib_written"] = round(out.stat().st_size / 2**20, 2)
    out.unlink()
    out.with_name(f"{out.name}.batch.json").unlink()
    return row


# Tasks, steps of a plan and windows: chains of random weights


def taxonomy(tasks: int, *, shared: bool = False) -> Taxonomy:
    """Tasks of ten actions each: their own, or drawn from a fifth as many names."""
    if not shared:
        names = [f"action {number}" for number in range(tasks * OWN)]
        own = [range(task * OWN, (task + 1) * OWN) for task in range(tasks)]
    else:
        generator, count = np.random.default_rng(0), tasks * OWN // SHARED
        names = [f"action {number}" for number in range(count)]
        own = [sorted(generator.choice(count, OWN, replace=False).tolist()) for _ in range(tasks)]
    return Taxonomy.from_names(
        "random", [(f"task {number}", ids) for number, ids in enumerate(own)], names
    )


def random_windows(of: Taxonomy, count: int, horizon: int) -> Windows:
    """Windows of random tasks, actions and observations."""
    generator = np.random.default_rng(1)
    tasks = generator.integers(len(of.tasks), size=count)
    own = np.array([task.actions for task in of.tasks])
    places = generator.integers(OWN, size=(count, horizon))
    initial, goal = (
        generator.standard_normal((count, FEATURES), dtype=np.float32) for _ in range(2)
    )
    return Windows(
        initial=initial,
        goal=goal,
        actions=own[tasks[:, None], places],
        tasks=tasks,
        video=np.arange(count),
        start=np.zeros(count, dtype=np.int64),
        taxonomy=of,
        action_text=None,
        dataset="random",
        split="train",
    )


def new_network(windows: Windows) -> ChainNetwork:
    """A chain of random weights over the actions of the windows' tasks."""
    config, of = ChainConfig(**NARROW), windows.taxonomy
    states = TaskStates.make([sorted(task.actions) for task in of.tasks], len(of.actions))
    network = ChainNetwork(
        config=config,
        states=states,
        observation_dim=FEATURES,
        horizon=windows.horizon,
        transitions=smoothed_transitions(states, windows.actions, windows.tasks),
    )
    network.reset(generator_for("cpu", 0))
    return network


def chain_plans(tasks: int, horizon: int, queries: int, shared: bool) -> dict[str, Any]:
    """Plan queries by a chain over tasks of ten actions each."""
    windows = random_windows(taxonomy(tasks, shared=shared), queries, horizon)
    row: dict[str, Any] = _sizes(windows)
    planner = ChainPlanner(ChainModel((new_network(windows).eval(),), 1.0))
    asked = Queries(initial=windows.initial, goal=windows.goal)
    planner.plan(asked.subset(range(8)), TOP)  # warms up
    with measured(row):
        planner.plan(asked, TOP)
    return row


def training_steps(tasks: int, horizon: int, steps: int, shared: bool) -> dict[str, Any]:
    """Training steps of batches of 256 windows of such tasks."""
    windows = random_windows(taxonomy(tasks, shared=shared), BATCH, horizon)
    row: dict[str, Any] = {**_sizes(windows), "steps": steps}
    _trained(random_windows(taxonomy(2), 8, 2), 1)  # warms up
    with measured(row):
        _trained(windows, steps)
    return row


def epoch(count: int) -> dict[str, Any]:
    """One epoch of so many windows of T = 3 in 24 tasks."""
    windows = random_windows(taxonomy(24), count, 3)
    row: dict[str, Any] = {"windows": count}
    row["mib_of_windows"] = round((windows.initial.nbytes + windows.goal.nbytes) / 2**20, 1)
    _trained(random_windows(taxonomy(2), 8, 2), 1)  # warms up
    with measured(row):
        _trained(windows, 1)
    return row


def _trained(windows: Windows, epochs: int) -> None:
    network = new_network(windows)
    config = ChainTrainingConfig(
        optimiser=OptimiserConfig(epochs=epochs, batch_size=BATCH),
        stopping=StoppingConfig(every=10_000, patience=0),
    )
    loss = ChainLoss(network=network, train=windows, val=windows.subset(range(8)), training=config)
    Training(loss, training=config, seed=0, key="").run()


def _sizes(windows: Windows) -> dict[str, Any]:
    of = windows.taxonomy
    return {
        "tasks": len(of.tasks),
        "actions": len(of.actions),
        "horizon": windows.horizon,
        "queries": len(windows),
    }


def ways() -> list[tuple[str, int]]:
    """Executors and workers that are compared."""
    found = [("serial", 1), ("processes", 1), ("processes", 2)]
    return [*found, ("ray", 1), ("ray", 2)] if find_spec("ray") else found


def measure(work: Path, *, quick: bool) -> dict[str, Any]:
    """All parts; `quick` ones are as many points, of a tenth of the size or less."""
    run = made_run(work, FEATURES)
    counts = (64, 256, 1024) if quick else (1_000, 10_000, 100_000)
    lists = {
        count: list_queries(work / f"queries-{count}.parquet", count, FEATURES) for count in counts
    }
    batch = [apart(plan_list, run, lists[count], count, "serial", 1) for count in counts]
    middle = counts[1]
    workers = [
        # in this process, since those of a pool may have no children
        plan_list(run, lists[middle], middle, *way)
        for _ in range(1 if quick else REPEATS)
        for way in (ways()[:3] if quick else ways())
    ]
    sizes = (5, 20, 50) if quick else (10, 100, 300, 1000)
    horizons = (3, 6) if quick else (3, 6, 9, 12)
    windows = (512, 2048) if quick else (2_000, 20_000, 200_000)
    asked, steps = (64, 2) if quick else (ASKED, 10)
    result: dict[str, Any] = {
        "plan-batch": {"rows": batch, "workers": workers},
        "tasks, planning": {"rows": [apart(chain_plans, n, 3, asked, False) for n in sizes]},
        "tasks, planning, actions in common": {
            "rows": [apart(chain_plans, n, 3, asked, True) for n in sizes]
        },
        "tasks, training": {"rows": [apart(training_steps, n, 3, steps, False) for n in sizes]},
        "horizon, planning": {"rows": [apart(chain_plans, 24, n, asked, False) for n in horizons]},
        "horizon, training": {
            "rows": [apart(training_steps, 24, n, steps, False) for n in horizons]
        },
        "windows, one epoch": {"rows": [apart(epoch, n) for n in windows]},
    }
    names = {"plan-batch": "queries", "tasks": "tasks", "horizon": "horizon", "windows": "windows"}
    for part, found in result.items():
        by = names[part.partition(",")[0]]
        found["cpu_seconds"] = line(found["rows"], by)
        found["memory_mib"] = line(found["rows"], by, "memory_mib")
    each = result["plan-batch"]["cpu_seconds"]
    each["of_a_million"] = each["start"] + 1e6 * each["each"]
    return result


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, below a minute")
    parser.set_defaults(out=Path("benchmarks/results/scale.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        parts = measure(Path(work), quick=arguments.quick)
    result = {
        **common.machine(),
        "data": "random observations; plan-batch: a run on the simulated world",
        "features": FEATURES,
        **NARROW,
        "quick": arguments.quick,
        **parts,
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
