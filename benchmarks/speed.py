"""Speed of the service, of plan-batch and of starting, beside that of an earlier version.

Both versions are measured in turn, so under the same load of the machine: requests a second and
processor time a request of `cefito serve` by clients, queries a second of `cefito plan-batch` by
processes and its processor time a query without their start, processor time of `cefito plan` from
a cold start, beside `import torch` alone, and of a `cefito train` whose settings are wrong, and
processor time and memory of whole trainings of planners at T = 3 on other data sets (--train).
The machine may have other work: of several rounds the fastest counts, and processor time says more
than rates. Plans are compared. Runs are of a prepared data set; those named `field…` have an energy
field and get a quarter of the requests.

    git worktree add BEFORE COMMIT
    python benchmarks/speed.py DATA RUN… --before BEFORE --out benchmarks/results/speed.json
    python benchmarks/speed.py DATA --before BEFORE --train DATA COIN \
        --out benchmarks/results/speed-training.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import serve
from all_videos import KEYS
from cefito.cli.console import talk
from cefito.data.prepared import open_dataset
from cefito.data.windows import cut_windows
from cefito.files import write_json
from cefito.runs.run import Run, open_run

SOURCE = Path(__file__).resolve().parents[1]
SAME = ("query", "line", "rank", "actions", "task_id", "exact")
CLOSE = ("score", "probability")


@contextmanager
def version(source: Path) -> Iterator[None]:
    """Start processes with the package of a checkout, with one thread and compiled modules."""
    kept = dict(os.environ)
    os.environ |= {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


class Cost(NamedTuple):
    """Cost of a command with its processes."""

    seconds: float
    cpu_seconds: float
    mebibytes: float  # most memory of one process


def timed(*command: str, code: int = 0) -> Cost:
    """Return the cost of a command that ends with this exit code."""
    with tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        whole = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            errors.seek(0)
            raise SystemExit(errors.read())
    return Cost(whole, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def requests(run: Path, opened: Run, clients: Sequence[int], count: int) -> list[dict[str, Any]]:
    """Load of the service by number of clients."""
    asked = [serve.request("/v1/plan", body) for body in serve.bodies(opened, 512)]
    server, rows = serve.Server(run), []
    asyncio.run(serve.load(server.port, asked, 8, 100))  # so that all is loaded
    for number in clients:
        before = server.cpu_seconds()
        row = asyncio.run(serve.load(server.port, asked, number, count))
        cpu = 1e3 * (server.cpu_seconds() - before) / count
        names = ("requests_per_second", "p50_ms", "p99_ms", "walked_together")
        kept = {name: row[name] for name in names}
        rows.append({"clients": number, **kept, "cpu_ms_per_request": round(cpu, 2)})
    server.end()
    return rows


def batch(run: Path, table: Path, out: Path, workers: int, count: int) -> dict[str, Any]:
    """A list planned by so many processes; its plans are left in `out`."""
    for left in out.parent.glob(f"{out.name}*"):
        left.unlink()
    call = ["-m", "cefito", "plan-batch", str(run), str(table), "--out", str(out), "--shard", "64"]
    ways = ["--executor", "processes" if workers > 1 else "serial", "--workers", str(workers)]
    cost = timed(*call, *ways)
    return {"workers": workers, "queries": count, **cost._asdict()}


def batches(run: Path, tables: dict[int, Path], out: Path) -> list[dict[str, Any]]:
    """Rates of plan-batch by processes; processor time without the start, from a short list."""
    rows = []
    for workers in (1, 2):
        short, long = (batch(run, table, out, workers, n) for n, table in sorted(tables.items()))
        more = long["queries"] - short["queries"]
        rows.append(
            {
                "workers": workers,
                "queries": long["queries"],
                "queries_per_second": round(long["queries"] / long["seconds"], 1),
                "cpu_ms_per_query": round(
                    1e3 * (long["cpu_seconds"] - short["cpu_seconds"]) / more, 3
                ),
                "start_cpu_seconds": round(short["cpu_seconds"], 2),
            }
        )
    return rows


def best(rounds: Sequence[list[dict[str, Any]]], rate: str, cpu: str) -> list[dict[str, Any]]:
    """The fastest of several rounds, row by row, with the least processor time of any."""
    return [
        max(rows, key=lambda row: row[rate]) | {cpu: min(row[cpu] for row in rows)}
        for rows in zip(*rounds, strict=True)
    ]


def table_of(data: Path, folder: Path, count: int) -> Path:
    """A table of queries: windows of all splits with a little noise."""
    import pyarrow
    from pyarrow import parquet

    dataset, generator = open_dataset(data), np.random.default_rng(0)
    splits = [cut_windows(dataset, horizon=3, split=split) for split in ("test", "val", "train")]
    columns = {}
    for name in ("initial", "goal"):
        rows = np.concatenate([getattr(windows, name) for windows in splits])
        exact = rows[np.arange(count) % len(rows)]
        noise = generator.standard_normal(exact.shape).astype(np.float32)
        columns[name] = list(exact + 0.05 * noise)
    path = folder / f"queries-{count}.parquet"
    parquet.write_table(pyarrow.table({"id": [f"q{n}" for n in range(count)], **columns}), path)
    return path


def starts(data: Path, run: Path, video: str) -> dict[str, float]:
    """Processor seconds of starting."""
    wrong = ["--set", "chain.hiden=8", "--out", "never"]
    return {
        "import_torch": timed("-c", "import torch").cpu_seconds,
        "plan": timed("-m", "cefito", "plan", str(run), "--video", video).cpu_seconds,
        "wrong_settings": timed("-m", "cefito", "train", str(data), *wrong, code=2).cpu_seconds,
    }


def training(data: Path, planner: str, out: Path, *settings: str) -> dict[str, float]:
    """Cost of training the preset `small` at T = 3."""
    call = ["train", str(data), "--horizon", "3", "--tracker", "none", "--out", str(out)]
    cost = timed("-m", "cefito", *call, "--method", planner, *settings)
    return {name: round(value, 1) for name, value in cost._asdict().items()}


def compared(before: Path, after: Path) -> dict[str, Any]:
    """How the rows of plans of both versions differ."""
    pairs = [
        (json.loads(one), json.loads(other))
        for one, other in zip(before.open(), after.open(), strict=True)
    ]
    return {
        "rows": len(pairs),
        "different": sum(any(one[n] != other[n] for n in SAME) for one, other in pairs),
        "largest_difference": max(abs(one[n] - other[n]) for one, other in pairs for n in CLOSE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, help="prepared data set of the runs")
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--before", type=Path, required=True, help="checkout of the other version")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--requests", type=int, default=500, help="for each number of clients")
    parser.add_argument("--queries", type=int, default=8192, help="of a batch; 0 for none")
    parser.add_argument("--repeats", type=int, default=2, help="rounds; the best counts")
    parser.add_argument("--train", type=Path, nargs="*", default=[], help="data sets to train on")
    parser.add_argument("--planners", nargs="*", default=["chain"], help="trained with --train")
    parser.add_argument("--set", nargs="*", default=[], help="settings of these, KEY=VALUE")
    given = parser.parse_args()
    settings = [part for one in given.set for part in ("--set", one)]
    sources = {"before": given.before, "after": SOURCE}
    video = next(one.video_id for one in open_dataset(given.data).videos if len(one.steps) > 3)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for path in given.runs:
            opened, row = open_run(path), {"run": path.name}
            count = given.requests if "field" not in path.name else given.requests // 4
            sizes = (128, given.queries) if given.queries else ()
            tables = {n: table_of(given.data, work, n) for n in sizes}
            rounds: dict[str, list[Any]] = {title: [] for title in sources}
            for _ in range(given.repeats):
                for title, source in sources.items():
                    with version(source):
                        service = requests(path, opened, (1, 8, 64), count)
                        plans = batches(path, tables, work / f"{title}.jsonl") if tables else []
                    rounds[title].append((service, plans))
                    talk(json.dumps({"run": path.name, title: rounds[title][-1]}))
            for title, measured in rounds.items():
                services, lists = zip(*measured, strict=True)
                row[title] = {
                    "service": best(services, "requests_per_second", "cpu_ms_per_request"),
                    "batch": best(lists, "queries_per_second", "cpu_ms_per_query"),
                }
            if tables:
                row["plans"] = compared(work / "before.jsonl", work / "after.jsonl")
            found.append(row)
        first: dict[str, list[dict[str, float]]] = {title: [] for title in sources}
        for _ in range(given.repeats if given.runs else 0):
            for title, source in sources.items():
                with version(source):
                    first[title].append(starts(given.data, given.runs[0], video))
        trainings: dict[str, dict[str, Any]] = {}
        for data, planner in product(given.train, given.planners):
            rows = trainings[f"{planner}, {data.name}"] = {}
            for title, source in sources.items():
                with version(source):
                    out = work / f"{title}-{planner}-{data.name}"
                    rows[title] = training(data, planner, out, *settings)
            with version(SOURCE):
                out = work / f"without-{planner}-{data.name}"
                without = ("--set", f"{KEYS[planner]}=0")
                rows["after, not on all videos"] = training(data, planner, out, *settings, *without)
            talk(json.dumps({planner: rows}))
    result = {
        "command": "python benchmarks/speed.py DATA RUN… --before BEFORE "
        f"--requests {given.requests} --queries {given.queries}",
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),  # of other work too
        "runs": found,
        "cpu_seconds": {
            title: {name: round(min(one[name] for one in rows), 2) for name in rows[0]}
            for title, rows in first.items()
            if rows
        },
        "training": trainings,
        "settings of training": given.set,
    }
    talk(json.dumps(result["cpu_seconds"]))
    if given.out is not None:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
