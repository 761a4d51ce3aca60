"""Call the command line with odd inputs and judge each outcome.

Each input is one call in a forked process and an own folder, with limits of time and memory. A good
outcome is a refusal in one line with exit code 1 or 2 that leaves no files, or an answer where one
is expected. The inputs are defined in `bad_cases.py`.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 20.0
"""Seconds after which an input counts as hanging."""
MEMORY = 3 << 30
"""Bytes of address space that an input may take beyond what the process has."""
GOOD = ("refused", "answered")


@dataclass(frozen=True)
class Case:
    """One odd input.

    The call has "{data}", "{run}", … for parts of the world, "{here}" for the input's own folder
    and "{out}" for a new path in it.
    """

    name: str
    argv: tuple[str, ...]
    make: Callable[[Path], object] | None = None  # makes the input's files in its own folder
    wanted: str = "refused"  # or "either" if an answer is right, too


@dataclass(frozen=True)
class Outcome:
    """The outcome of an input: refused, answered, or one of the faults."""

    kind: str
    code: int | None
    said: str


@dataclass(frozen=True)
class World:
    """A small data set and runs on it, with the path of each part by its name."""

    root: Path
    places: dict[str, str]


def make_world(root: Path) -> World:
    """Make the world; its runs are trained in a second or two."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy as np
    import torch

    torch.set_num_threads(1)  # a forked process waits forever for OpenMP's threads of its parent
    from cefito.cli import main

    draws = np.random.default_rng(0)
    features, lines = root / "features", ["video,task,step,start,end,split"]
    features.mkdir(parents=True)
    for number in range(24):
        task = number % 3
        split = ("train", "train", "train", "val", "test", "train")[number // 3 % 6]
        for step in range(5):
            action = f"t{task} a{(step + number // 3) % 4}"
            lines.append(f"v{number},task {task},{action},{4 * step},{4 * step + 3},{split}")
        np.save(features / f"v{number}.npy", draws.standard_normal((24, 8)).astype("float32"))
    (root / "steps.csv").write_text("\n".join(lines) + "\n")
    places = {"table": root / "steps.csv", "features": features, "data": root / "data"}
    calls = [["data", "prepare", "custom", str(places["table"]), str(places["data"])]]
    calls[0] += ["--features", str(features)]
    quick = ("training.optimiser.epochs=1", "training.negatives.count=5", "field.width=16")
    quick += ("chain_training.optimiser.epochs=1", "field.heads=2", "chain.hidden=16")
    for method, name, more in (("frequent", "simple", ()), ("cefito", "run", quick)):
        places[name] = root / name
        call = ["train", str(places["data"]), "--horizon", "3", "--out", str(places[name])]
        call += ["--method", method]
        for entry in ("classifier_training.optimiser.epochs=1", *more):
            call += ["--set", entry]
        calls.append(call)
    for call in calls:
        with (root / "log").open("a") as log, redirect_stdout(log), redirect_stderr(log):
            code = main(call)
        if code:
            raise SystemExit(f"the world cannot be made: {call} ended with {code}")
    for name in ("a", "b"):
        places[name] = root / f"{name}.npy"
        np.save(places[name], draws.standard_normal(24).astype("float32"))
    return World(root, {name: str(path) for name, path in places.items()})


def run_case(case: Case, world: World, folder: Path, limit: float = LIMIT) -> Outcome:
    """Run one input in a process of its own and judge what it did."""
    here = folder / "case"
    here.mkdir(parents=True)
    if case.make is not None:
        case.make(here)
    before = _listing(here) | _listing(world.root)
    parts = {**world.places, "here": str(here), "out": str(here / "out")}
    argv = [_filled(part, parts) for part in case.argv]
    until = time.monotonic() + limit
    child = os.fork()
    if child == 0:
        _in_child(argv, folder)
    code = _waited(child, until)
    said = (folder / "stderr").read_text("utf-8", "surrogateescape")
    left = sorted((_listing(here) | _listing(world.root)) - before)
    return Outcome(_judged(case, code, said, left), code, said or ", ".join(left))


def _filled(text: str, parts: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: parts.get(found[1], found[0]), text)


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def _in_child(argv: list[str], folder: Path) -> None:
    code = 70
    gc.freeze()  # decoders that other tests have left wait for threads which a child lacks
    try:
        os.setsid()
        os.chdir(folder / "case")
        _redirect(folder)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        from cefito.cli import main

        code = main(argv)
    except SystemExit as problem:
        code = problem.code if isinstance(problem.code, int) else 1
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.flush()
        os._exit(code)


def _redirect(folder: Path) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _waited(child: int, until: float) -> int | None:
    """Return the exit code; None if the child had to be killed."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.005)


def _judged(case: Case, code: int | None, said: str, left: Sequence[str]) -> str:
    """Return the kind of an outcome: refused, answered, or the name of a fault."""
    lines = said.splitlines()
    if code is None:
        return "hang"
    if "Traceback (most recent call last)" in said:
        return "traceback"
    if "error: unexpected " in said:  # caught by the catch-all only
        return "unexpected"
    if code < 0:
        return "killed"
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said):
        return "control characters"
    if code == 0:
        return "silent success" if case.wanted == "refused" else "answered"
    errors = [line for line in lines if line.startswith("error: ")]
    if code not in (1, 2) or len(errors) > 1 or not lines or (code == 2 and not errors):
        return "not one line"
    if left:
        return "left something"
    return "refused"
