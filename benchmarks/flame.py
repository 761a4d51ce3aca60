"""Flame graphs: where the time of a query and of a training of the chain goes.

A process that plans queries of a run as the service does, one after the other, or trains a chain on
its data set, is sampled by py-spy (`pip install py-spy`) once it is at work. Wide boxes take much
time; below each are the functions that it calls.

    python benchmarks/flame.py query RUN --out docs/images/flame-query.svg
    python benchmarks/flame.py training RUN --out docs/images/flame-training.svg
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path

WIDTH, ROW = 1000, 16  # of the picture and of a row of boxes
LEAST = 0.005  # share of all samples that a box needs

QUERY = """
import json, sys
import serve
import torch
from cefito.runs.run import open_run
from cefito.serve.models import open_models
from cefito.serve.requests import prepare, solve, to_response
from cefito.serve.schemas import PlanRequest
from cefito.serve.scheduler import SearchJob
from cefito.serve.settings import Limits
from pathlib import Path

torch.set_num_threads(1)
run, limits = Path(sys.argv[1]), Limits()
models, bodies = open_models([run]), serve.bodies(open_run(run), 256)

def answer(body):
    request = PlanRequest.model_validate(json.loads(body))
    work = prepare(models, limits, request)
    job = SearchJob(work=work, kind=work.kind, expensive=False, deadline=float("inf"))
    (found,) = solve([job], lambda: False)
    return to_response(job, found, 0.0).model_dump_json()

answer(bodies[0])
print("ready", flush=True)
while True:
    for body in bodies:
        answer(body)
"""
TRAINING = """
import sys
import torch
from pathlib import Path
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run
import tempfile

torch.set_num_threads(1)
run = open_run(Path(sys.argv[1]))
epochs = {"chain_training.optimiser.epochs": 1000}
dataset = run.dataset()
config = load_config(
    "small", method="chain", dataset=dataset.name, horizon=run.horizon, overrides=epochs
)
print("ready", flush=True)
with tempfile.TemporaryDirectory() as folder:
    train_run(
        dataset, Path(folder) / "run", config=config, horizon=run.horizon, seed=0, tracker="none"
    )
"""


def sampled(code: str, run: Path, out: Path, seconds: int) -> list[str]:
    """Stacks and counts of a process that runs this code, from its line "ready" on."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise SystemExit(f"{run}: cannot be planned with or trained again")
            spy = ["py-spy", "record", "--pid", str(process.pid), "--duration", str(seconds)]
            spy += ["--rate", "200", "--nonblocking", "--format", "raw", "--output", str(out)]
            subprocess.run(spy, check=True, stdout=subprocess.DEVNULL)
        finally:
            process.kill()
    lines = out.read_text(encoding="utf-8").splitlines()
    out.unlink()
    return lines


def stacks(lines: Iterable[str], root: str) -> Counter[tuple[str, ...]]:
    """Samples by stack of functions, each from a function on; other samples are left out."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        frames, _, count = line.rpartition(" ")
        names = [re.sub(r":\d+\)$", ")", frame) for frame in frames.split(";")]
        first = next((n for n, name in enumerate(names) if name.startswith(f"{root} ")), None)
        if first is not None:
            found[tuple(names[first:])] += int(count)
    return found


def drawn(found: Counter[tuple[str, ...]], title: str) -> str:
    """The flame graph of stacks as SVG: a box for each function with at least a share of all."""
    total, shapes, depth = sum(found.values()), [], 0
    level: list[tuple[float, Counter[tuple[str, ...]]]] = [(0.0, found)]
    while level:
        following = []
        for start, part in level:
            groups: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
            for stack, count in part.items():
                if stack:
                    groups[stack[0]][stack[1:]] += count
            for name, inner in sorted(groups.items()):
                share = sum(inner.values()) / total
                if share < LEAST:
                    continue
                shapes.append(_box(name, start, share, depth))
                following.append((start, inner))
                start += share
        level, depth = following, depth + 1
    height = ROW * (depth + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="monospace" font-size="11"><rect width="{WIDTH}" height="{height}" '
        f'fill="white"/><text x="4" y="13">{escape(title)}, {total} samples</text>'
        f"{''.join(shapes)}</svg>\n"
    )


def _box(name: str, start: float, share: float, depth: int) -> str:
    x, y, width = WIDTH * start, ROW * (depth + 1), WIDTH * share
    short = name.partition(" ")[0].rpartition(".<locals>.")[2]
    label = f"{short} {100 * share:.0f} %"
    label = label[: int((width - 4) / 6.7)]
    hue = 20 + sum(map(ord, name)) % 35
    whole = escape(f"{name}: {100 * share:.1f} %")
    return (
        f'<g><title>{whole}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" '
        f'height="{ROW - 1}" fill="hsl({hue},85%,70%)"/>'
        + (f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text>' if len(label) > 2 else "")
        + "</g>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("query", "training"))
    parser.add_argument("run", type=Path, help="run whose data set is open to it")
    parser.add_argument("--out", type=Path, required=True, help="SVG to write")
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    code, root, title = {
        "query": (QUERY, "answer", "A query, from its JSON to the JSON of its answer"),
        "training": (TRAINING, "_Training._epoch", "A training of the chain"),
    }[given.what]
    lines = sampled(code, given.run, given.out.with_suffix(".raw"), given.seconds)
    given.out.write_text(drawn(stacks(lines, root), title), encoding="utf-8")


if __name__ == "__main__":
    main()
