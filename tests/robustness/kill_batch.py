"""Kill `cefito plan-batch` at random moments, resume it each time, and compare the result.

Each finished file must be equal to the one of an uninterrupted command, to the byte.

    python tests/robustness/kill_batch.py --kills 20 --executor processes --workers 2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ONCE = ("training.optimiser.epochs", "chain_training.optimiser.epochs", "chain.members")
SETTINGS = {**dict.fromkeys(ONCE, 1), "field.width": 16, "search.fitting_windows": 10}
CALL = [sys.executable, "-c", "import sys; from cefito.cli import main; sys.exit(main())"]


def made(folder: Path, videos: int) -> tuple[Path, Path]:
    """Return a run and its world, with `videos` test videos."""
    from cefito.data.simulation.world import WorldKnobs, write_world
    from cefito.planners.methods import load_config
    from cefito.runs.train import train_run

    world = write_world(folder / "world", knobs=WorldKnobs(train=24, val=8, test=videos, dim=8))
    config = load_config("small", dataset="synthetic", horizon=3, overrides=SETTINGS)
    run = train_run(world, folder / "run", config=config, horizon=3, seed=0, tracker="none")
    return run.folder, world.folder


def begin(run: Path, world: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [*CALL, "plan-batch", str(run), str(world), "--out", str(out), "--shard", "64", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait until a command ends well."""
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"plan-batch ended with {process.returncode}: {errors}")


def whole(run: Path, world: Path, out: Path, *options: str) -> float:
    """Run the command to its end and return its duration in seconds."""
    started = time.monotonic()
    finish(begin(run, world, out, *options))
    return time.monotonic() - started


def disturbed(
    run: Path, world: Path, out: Path, options: list[str], kills: int, seed: int, wanted: bytes
) -> dict[str, Any]:
    """Kill the command `kills` times and return the observations."""
    chance = random.Random(seed)
    seconds = whole(run, world, out, *options)
    found: dict[str, Any] = {"kills": 0, "ends": 0, "equal": 0, "shards_at_kill": []}

    def ended() -> None:
        found["ends"] += 1
        found["equal"] += out.read_bytes() == wanted
        for path in list(out.parent.glob(f"{out.name}*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    ended()
    while found["kills"] < kills:
        process = begin(run, world, out, *options)
        try:
            process.wait(timeout=chance.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            found["kills"] += 1
            parts = out.with_name(out.name + ".parts")
            found["shards_at_kill"].append(len(list(parts.glob("*.shard"))))
            continue
        finish(process)
        ended()
    whole(run, world, out, *options)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    first = [row["line"] for row in lines if row["rank"] == 1]
    found["queries"] = len(first)
    found["each_once_in_order"] = first == list(range(1, len(first) + 1))
    ended()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--videos", type=int, default=600, help="test videos of the world")
    parser.add_argument("--executor", default="serial")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    options = ["--executor", arguments.executor, "--workers", str(arguments.workers)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, world = made(folder, arguments.videos)
        reference = folder / "whole.jsonl"
        whole(run, world, reference, "--executor", "serial")
        plans, wanted = folder / "plans.jsonl", reference.read_bytes()
        found = disturbed(run, world, plans, options, arguments.kills, arguments.seed, wanted)
    print(json.dumps({"executor": arguments.executor, **found}))  # noqa: T201
    return int(found["equal"] < found["ends"] or not found["each_once_in_order"])


if __name__ == "__main__":
    sys.exit(main())
