"""Golden runs: what every method trained, planned and answered when the golden files were written.

Everything is asked by the command line, HTTP, MCP and a session, so that the files outlive changes
inside. To write them anew, after a change that is meant to move them:

    CEFITO_WRITE_GOLDEN=1 python -m pytest tests/golden
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cefito.cli import main
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import cut_windows
from cefito.files import file_digest
from cefito.planners.methods import load_config
from cefito.testing.contract import QUICK, quick
from tiny_runs import NARROW, TINY_LENGTHS, TINY_RUN, as_arguments

WRITES = bool(os.environ.get("CEFITO_WRITE_GOLDEN"))
QUERIES, TOP_K = 4, 3


def train(data: Path, method: str, out: Path, *steps: str) -> dict[str, str]:
    """Train a method quickly; return the digests of its weights by file."""
    config = load_config("quickstart", method=method, shared=True)
    changes = quick(config.sections, QUICK) | NARROW | TINY_RUN | TINY_LENGTHS
    known = {
        name: value for name, value in changes.items() if name.split(".")[0] in config.sections
    }
    command = ["train", str(data), "--method", method, "--preset", "quickstart", *steps]
    assert main([*command, "--out", str(out), "--seed", "0", *as_arguments(known)]) == 0
    return {path.name: file_digest(path) for path in sorted(out.rglob("*.safetensors"))}


def table(data: PreparedDataset, path: Path, horizon: int = 3) -> Path:
    """Write queries of test windows, whose observations are lists of numbers."""
    windows = cut_windows(data, horizon=horizon, split="test")
    rows = [
        {end: getattr(windows, end)[row].tolist() for end in ("initial", "goal")}
        for row in range(0, len(windows), max(1, len(windows) // QUERIES))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:QUERIES]))
    return path


def printed(capsys: Any, *command: str) -> list[Any]:
    """What a command prints, as JSON: one value, or one a line."""
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    out = capsys.readouterr().out
    try:
        return [json.loads(out)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in out.splitlines()]


def processor() -> str:
    """Instruction set and generation, on which the bits of weights depend."""
    known = Path("/proc/cpuinfo")
    text = known.read_text() if known.exists() else ""
    numbers = re.findall(r"^(?:cpu family|model)\s*: (\d+)$", text, re.MULTILINE)[:2]
    return " ".join([str(torch.backends.cpu.get_cpu_capability()), *numbers])


def differences(ours: Any, golden: Any, place: str = "", atol: float = 1e-4) -> Iterator[str]:
    """Yield each place where a value differs, numbers by more than the tolerance."""
    if isinstance(ours, float) or isinstance(golden, float):
        close = isinstance(ours, int | float) and isinstance(golden, int | float)
        if not (close and math.isclose(ours, golden, rel_tol=10 * atol, abs_tol=atol)):
            yield f"{place}: {ours} instead of {golden}"
    elif isinstance(ours, dict) and isinstance(golden, dict):
        # a metric that is younger than the file has nothing to be compared with
        younger = ours.keys() - golden.keys() if place.endswith("/metrics") else set()
        for name in sorted((ours.keys() | golden.keys()) - younger, key=str):
            yield from differences(ours.get(name), golden.get(name), f"{place}/{name}", atol)
    elif isinstance(ours, list) and isinstance(golden, list) and len(ours) == len(golden):
        for number, (one, other) in enumerate(zip(ours, golden, strict=True)):
            yield from differences(one, other, f"{place}/{number}", atol)
    elif ours != golden:
        yield f"{place}: {ours} instead of {golden}"


def untimed(value: Any) -> Any:
    """A value of JSON without times and versions."""
    if isinstance(value, list):
        return [untimed(each) for each in value]
    if isinstance(value, dict):
        changing = ("versions", "seconds_per_query", "request_id", "milliseconds")
        return {key: untimed(each) for key, each in value.items() if key not in changing}
    return value


def check(name: str, found: Any) -> None:
    """Compare with a golden file, or write it if asked."""
    path = Path(__file__).with_name("files") / f"{name}.json"
    found = json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 6))
    found = untimed(found)
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    golden = json.loads(path.read_text())
    if found.get("processor") != golden.get("processor"):  # other bits, and maybe other rounding
        found, golden = ({**each, "weights": None, "processor": None} for each in (found, golden))
    assert list(differences(found, golden)) == []
