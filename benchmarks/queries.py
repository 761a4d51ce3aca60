"""Many queries: how many a second are planned, by each search, and how memory grows.

A simulated data set with as many tasks and actions as CrossTask is made (18 tasks of 3 to 11
actions), and a `small` run is trained on it for one epoch; of the `paper` size is a field with
random weights in its place. How good plans are does not matter here. Queries of all tasks come
mixed, as test windows do. Of each row as many are planned as fit into `--seconds`, at most
`--queries`; the first ones warm up. Rows:

- preset: as `small` plans, its chain's likeliest sequences ordered anew by all terms (five tasks);
- exact, guided: the energy alone over the likeliest task, in float32;

    python benchmarks/queries.py --work WORK --out benchmarks/results/queries.json
    python benchmarks/queries.py --work WORK --sizes small --horizons 3 --queries 2000
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.cli.console import talk
from cefito.data import cut_windows, open_dataset, write_dataset
from cefito.data.annotations import Annotations, Step, Video
from cefito.data.simulation.observations import ObservationKnobs, observe
from cefito.data.vocabulary import Taxonomy
from cefito.field.fields import incremental_field, make_field
from cefito.files import write_json
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.train import train_run
from cefito.runtime import generator_for, pick_device
from cefito.search.settings import search_settings
from common import TASK_SIZES

WINDOWS = 20  # of a test video
QUICK = {
    "training.optimiser.epochs": 1,
    "training.stopping.every": 1,
    "training.stopping.windows": 10,
    "chain_training.optimiser.epochs": 1,
    "search.fitting_windows": 60,
}
ENERGY = {"objective": "energy", "tasks": 1}
ROWS: dict[str, dict[str, Any]] = {
    "preset": {},
    "exact": {**ENERGY, "method": "exhaustive"},
    "guided": {**ENERGY, "method": "guided"},
}
GUIDED = {"proposals": 512, "starts": 12, "refinements": 256}  # the defaults, not those of `small`


def annotated(horizon: int, queries: int) -> Annotations:
    """Tasks of actions of their own; every test video has `WINDOWS` windows."""
    generator, ends = np.random.default_rng(0), np.cumsum(TASK_SIZES)
    owned = [
        np.arange(end - size, end) for size, end in zip(TASK_SIZES, ends.tolist(), strict=True)
    ]
    videos: list[Video] = []

    def add(split: str, task: int, count: int) -> None:
        own = owned[task]
        steps = np.concatenate([generator.permutation(own) for _ in range(-(-count // len(own)))])
        placed = [
            Step(2.0 * n, 2.0 * n + 1, action) for n, action in enumerate(steps[:count].tolist())
        ]
        videos.append(Video(f"{split} {len(videos)}", split, task, tuple(placed)))

    for task in range(len(owned)):
        for _ in range(4):
            add("train", task, 2 * len(owned[task]) + horizon)
        add("val", task, horizon + 3)
    for number in range(-(-queries // WINDOWS)):
        add("test", number % len(owned), WINDOWS + horizon - 1)
    taxonomy = Taxonomy.from_names(
        "as many tasks as CrossTask",
        [(f"task {number}", own.tolist()) for number, own in enumerate(owned)],
        [f"action {number}" for number in range(int(ends[-1]))],
    )
    return Annotations(taxonomy=taxonomy, videos=tuple(videos))


def prepared(work: Path, horizon: int, queries: int, dim: int, device: str) -> CefitoPlanner:
    """The `small` planner after an epoch of training, its data set beside it in the folder."""
    name = f"{horizon}-{queries}-{dim}"
    data = work / f"data-{name}"
    if not data.exists():
        made = annotated(horizon, queries)
        start, end = observe(made, ObservationKnobs(), dim=dim, seed=0)
        write_dataset(
            data,
            name="as many tasks as CrossTask (simulated)",
            annotations=made,
            start=start,
            end=end,
            provenance={"observations": "simulated", "generator": "benchmarks/queries.py"},
        )
    run = train_run(
        open_dataset(data),
        work / f"run-{name}",
        config=load_config("small", method="cefito+chain", overrides=QUICK),
        horizon=horizon,
        seed=0,
        device=pick_device(device),
    )
    planner = run.planner
    assert isinstance(planner, CefitoPlanner)
    return planner


def of_paper_size(planner: CefitoPlanner) -> CefitoPlanner:
    """The same with a field of the `paper` size and random weights."""
    config, generator = load_config("paper").settings.field, generator_for("cpu", 0)
    count = planner.vocabulary.actions
    assert count is not None
    field = make_field(
        config=config,
        observation_dim=planner.observation_dim,
        action_count=count,
        horizon=planner.horizon,
        action_vectors=torch.randn(count, 512, generator=generator),
    )
    field.reset(generator)
    with torch.no_grad():  # three times as large, so that energies differ
        for parameter in field.parameters():
            parameter.mul_(3.0)
    device = planner.incremental.device
    return replace(planner, incremental=incremental_field(field.to(device).eval()))


def measure(planner: CefitoPlanner, queries: Queries, seconds: float) -> dict[str, Any]:
    """Queries a second, of as many as fit into some seconds."""
    first = queries.subset(range(min(8, len(queries))))
    planner.plan(first, 5)
    started = time.perf_counter()
    planner.plan(first, 5)
    each = (time.perf_counter() - started) / len(first)
    parts: list[dict[str, float]] = []
    spent = spent_cpu = 0.0
    done = tokens = leaves = 0
    # three parts, the last the largest: a rate for each, and whether memory still grows
    for share in (0.1, 0.3, 0.6):
        count = min(len(queries) - done, max(len(first), int(share * seconds / each)))
        if count <= 0:
            break
        started, began = time.perf_counter(), time.process_time()
        found = planner.plan(queries.subset(range(done, done + count)), 5)
        taken, cpu = time.perf_counter() - started, time.process_time() - began
        spent, spent_cpu, done = spent + taken, spent_cpu + cpu, done + count
        tokens += sum(plans.evaluated.token_forwards for plans in found)
        leaves += sum(plans.evaluated.leaves for plans in found)
        parts.append({"queries": count, "seconds": taken, "peak_mib": round(common.peak_mib(), 1)})
        each = taken / count
    return {
        "queries": done,
        "queries_per_second": done / spent,
        "queries_per_cpu_second": done / spent_cpu,
        "token_forwards_per_query": tokens / done,
        "leaves_per_query": leaves / done,
        "parts": parts,
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for data sets and runs")
    parser.add_argument("--horizons", type=int, nargs="+", default=[3, 4])
    parser.add_argument(
        "--sizes", nargs="+", choices=["small", "paper"], default=["small", "paper"]
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--queries", type=int, default=10_000, help="most of a row")
    parser.add_argument("--seconds", type=float, default=60, help="about as long a row")
    parser.add_argument("--dim", type=int, default=512, help="features of an observation")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    device = pick_device(given.device)
    result: dict[str, Any] = {
        **common.machine(device),
        "fields": "small: trained for one epoch on simulated observations; paper: random weights",
        "tasks": list(TASK_SIZES),
        "rows": [],
    }
    given.work.mkdir(parents=True, exist_ok=True)
    for horizon in given.horizons:
        small = prepared(given.work, horizon, given.queries, given.dim, given.device)
        dataset = open_dataset(given.work / f"data-{horizon}-{given.queries}-{given.dim}")
        windows = cut_windows(dataset, horizon=horizon, split="test")
        order = np.random.default_rng(0).permutation(len(windows))[: given.queries]
        queries = Queries.from_windows(windows.subset(order))
        for size in given.sizes:
            planner = small if size == "small" else of_paper_size(small)
            for name in given.rows:
                if name == "preset" and size == "paper":
                    continue
                more = GUIDED if name.startswith("guided") else {}
                settings = search_settings(small.settings.search, **ROWS[name], **more)
                row = {"horizon": horizon, "field": size, "search": name}
                row |= measure(planner.with_search(settings), queries, given.seconds)
                talk(json.dumps(row))
                result["rows"].append(row)
    if given.out:
        write_json(given.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
