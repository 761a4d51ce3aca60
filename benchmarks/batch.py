"""Queries a second of `cefito plan-batch` by executor and workers, and its memory by queries.

A simulated world is made and a run of the preset `small` trained on it for a few epochs: how good
its plans are does not matter here. Lists of queries, whose observations stand in them as Parquet,
are drawn from its test windows with a little noise. Every batch is planned by a process of its own
and takes the start of Python and of the workers with it; the rate is also given without that, from
a batch of a single query. Memory, the largest that a process had resident as the system tells, is
measured with the nearest-window planner, which has many queries planned soon: what grows with the
queries would be the batch's own.

    python benchmarks/batch.py --work WORK --out benchmarks/results/batch.json
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.cli.console import talk
from cefito.data.prepared import open_dataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.files import sha256, write_json
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run

EPOCHS = {
    "training.optimiser.epochs": 2,
    "training.stopping.windows": 50,
    "chain_training.optimiser.epochs": 2,
    "search.fitting_windows": 50,
}
MEASURED = """
import resource, sys
from cefito.cli import main
code = main()
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
# that of getrusage also counts what was held by the process that began this one
with open("/proc/self/status") as lines:
    own = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
print("peak MiB", own, workers, file=sys.stderr)
sys.exit(code)
"""


def made(work: Path, dim: int, method: str) -> Path:
    """A run of a method on a simulated world."""
    run, world = work / f"run-{method}", work / "world"
    if not world.exists():
        write_world(world, knobs=WorldKnobs(dim=dim))
    if not (run / "manifest.json").exists():
        config = load_config(
            "small", method=method, dataset="synthetic", horizon=3, overrides=EPOCHS, shared=True
        )
        opened = open_dataset(world)
        train_run(opened, run, config=config, horizon=3, seed=0)
    return run


def listed(work: Path, run: Path, queries: int) -> Path:
    """So many queries as a list."""
    path = work / f"queries-{queries}.parquet"
    windows = cut_windows(open_run(run).dataset(), horizon=3, split="test")
    generator = np.random.default_rng(0)

    def rows() -> Iterator[Any]:
        for first, size in common.groups(queries):
            chosen = np.arange(first, first + size) % len(windows)
            parts = {}
            for name in ("initial", "goal"):
                exact = getattr(windows, name)[chosen]
                noise = generator.standard_normal(exact.shape).astype(np.float32)
                parts[name] = list(exact + 0.05 * noise)
            yield {"id": [f"q{first + n}" for n in range(size)], **parts}

    return common.write_table(path, rows())


def planned(run: Path, path: Path, out: Path, executor: str, workers: int) -> dict[str, Any]:
    """Plan a list in a process of its own: seconds, and the peaks of it and of its largest worker.

    What it leaves is removed, but for the digest of the plans; so is what a stopped one left.
    """
    _remove(out)
    call = ["plan-batch", run, path, "--out", out, "--shard", 128]
    call += ["--executor", executor, "--workers", workers]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, call), "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"plan-batch: {done.stderr}")
    own, workers_mib = map(float, done.stderr.rsplit("peak MiB", 1)[1].split()[:2])
    found = {
        "seconds": seconds,
        "peak_mib": own,
        "worker_peak_mib": workers_mib,
        "plans_sha256": sha256(out),
        "plans_mib": out.stat().st_size / 2**20,
        **json.loads(done.stdout),
    }
    _remove(out)
    return found


def _remove(out: Path) -> None:
    for left in out.parent.glob(f"{out.name}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def measure(run: Path, work: Path, sizes: list[int], ways: list[str]) -> list[dict[str, Any]]:
    """A row for each way and size; ways are `executor:workers`."""
    single, rows = listed(work, run, 1), []
    lists = {size: listed(work, run, size) for size in sizes}
    for way in ways:
        executor, _, workers = way.partition(":")
        start = planned(run, single, work / "single.jsonl", executor, int(workers))["seconds"]
        for size, path in lists.items():
            found = planned(run, path, work / "plans.jsonl", executor, int(workers))
            rows.append(
                {
                    "method": open_run(run).method,
                    "executor": executor,
                    "workers": int(workers),
                    "queries": size,
                    "seconds": round(found["seconds"], 2),
                    "start_seconds": round(start, 2),
                    "queries_per_second": round(size / found["seconds"], 1),
                    "without_start": round(size / max(found["seconds"] - start, 1e-3), 1),
                    "peak_mib": round(found["peak_mib"], 1),
                    "worker_peak_mib": round(found["worker_peak_mib"], 1),
                    "list_mib": round(path.stat().st_size / 2**20, 1),
                    "plans_mib": round(found["plans_mib"], 1),
                    "plans_sha256": found["plans_sha256"],
                    "bad": found["bad"],
                }
            )
            talk(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for worlds and lists")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2000], help="queries, for rates")
    parser.add_argument("--many", type=int, nargs="*", default=[1000, 50000], help="for memory")
    parser.add_argument("--ways", nargs="+", default=["serial:1", "processes:1", "processes:2"])
    parser.add_argument("--dim", type=int, default=512, help="features of an observation")
    parser.set_defaults(out=Path("benchmarks/results/batch.json"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rates, memory = (
        measure(made(arguments.work, arguments.dim, method), arguments.work, sizes, ways)
        if sizes
        else []
        for method, sizes, ways in (
            ("cefito", arguments.sizes, arguments.ways),
            ("nearest", arguments.many, ["serial:1", "processes:2"]),
        )
    )
    digests: dict[tuple[str, int], set[str]] = {}
    for row in [*rates, *memory]:
        digests.setdefault((row["method"], row["queries"]), set()).add(row["plans_sha256"])
    result = {
        **common.machine(),
        "data": "simulated world",
        "features": arguments.dim,
        "horizon": 3,
        "plans_equal": all(len(found) == 1 for found in digests.values()),
        "rates": rates,
        "memory": memory,
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
