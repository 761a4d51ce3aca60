r"""Searches by two versions of the library, in turn, beside full forwards.

A `paper`-size field with random weights, 11 actions, float32, one thread. Each version runs in a
process of its own; every round asks both for each search, so that other work on the machine meets
both alike. CPU time, the median of the rounds. A search cannot take less than the products of its
blocks' layers, at the rate of the largest one alone: `limits` of the present version.

    python benchmarks/search_versions.py --before CHECKOUT \
        --out benchmarks/results/search-versions.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HORIZONS, ACTIONS, FORWARDS = (3, 4), 11, 400  # sequences of which full forwards are timed
KINDS = ("one by one", "exact", "guided", "guided, screened")


def made() -> tuple[dict[int, Any], dict[str, Any], Any]:
    """Return a field of each horizon, the searches and the problem."""
    import torch

    from cefito.field.fields import IncrementalField
    from cefito.search import ExhaustiveSearch, GuidedSearch
    from search import random_field, random_problem

    torch.set_num_threads(1)
    fields = {
        horizon: IncrementalField(random_field(horizon, torch.device("cpu")))
        for horizon in HORIZONS
    }
    searches = {
        "exact": ExhaustiveSearch(),
        "guided": GuidedSearch(),
        "guided, screened": GuidedSearch(screening="on"),
    }
    return fields, searches, random_problem(ACTIONS)


def serve() -> None:
    """Answer each line (kind, horizon) with CPU seconds and token forwards."""
    from search import naive_seconds

    fields, searches, problem = made()
    for line in sys.stdin:
        kind, horizon = json.loads(line)
        field, spent = fields[horizon], None
        started = time.process_time()
        if kind == "one by one":
            naive_seconds(field, problem, FORWARDS)
        else:
            spent = searches[kind].search(field, [problem], 5)[0].evaluated.token_forwards
        seconds = time.process_time() - started
        if kind == "one by one":
            seconds *= ACTIONS**horizon / FORWARDS
        print(json.dumps([seconds, spent]), flush=True)


class Version:
    """A version of the library in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, kind: str, horizon: int) -> tuple[float, int | None]:
        """CPU seconds and token forwards of a search."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin
        assert stdout
        stdin.write(json.dumps([kind, horizon]) + "\n")
        stdin.flush()
        seconds, spent = json.loads(stdout.readline())
        return seconds, spent

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


def limits(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations of searches in float32, the least time they take, and the ratio by it."""
    import torch

    from cefito.field.frozen import FrozenLinear

    fields, searches, problem = made()
    call: Any = FrozenLinear.__call__
    counted = [0]

    def counting(layer: Any, x: torch.Tensor) -> Any:
        counted[0] += 2 * (x.numel() // x.shape[-1]) * layer._weight.numel()
        return call(layer, x)

    large = FrozenLinear(torch.randn(1536, 384), None, dtype=torch.float32)
    x, times = torch.randn(1024, 384), []
    for _ in range(30):
        began = time.process_time()
        large(x)
        times.append(time.process_time() - began)
    rate = 2 * 1024 * 1536 * 384 / min(times)
    found, plain = [], {row["horizon"]: row for row in rows if row["search"] == KINDS[0]}
    FrozenLinear.__call__ = counting  # type: ignore[method-assign]
    for horizon, name in itertools.product(HORIZONS, ("exact", "guided")):
        counted[0] = 0
        searches[name].search(fields[horizon], [problem], 5)
        least = counted[0] / rate
        found.append(
            {
                "horizon": horizon,
                "search": name,
                "gflop": counted[0] / 1e9,
                "gflop_per_second": rate / 1e9,
                "least_seconds": least,
                "most_against_one_by_one": plain[horizon]["after"]["seconds"] / least,
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def compared(versions: dict[str, Version], horizon: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each search."""
    seconds: dict[tuple[str, str], list[float]] = {}
    tokens: dict[tuple[str, str], int | None] = {}
    for number in range(rounds + 1):  # the first warms up
        for kind, name in itertools.product(KINDS, versions):
            taken, tokens[kind, name] = versions[name].ask(kind, horizon)
            if number:
                seconds.setdefault((kind, name), []).append(taken)
    rows = []
    for kind in KINDS:
        row: dict[str, Any] = {"horizon": horizon, "search": kind}
        for name in versions:
            values, plain = seconds[kind, name], seconds[KINDS[0], name]
            row[name] = {
                "seconds": float(np.median(values)),
                "token_forwards": tokens[kind, name],
                "against_one_by_one": float(np.median(np.divide(plain, values))),
            }
        pair = [seconds[kind, name] for name in versions]
        row["before_over_after"] = float(np.median(np.divide(*pair)))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=Path, help="checkout of the version before")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    roots = {"before": given.before.resolve(), "after": Path(__file__).resolve().parents[1]}
    versions = {name: Version(root) for name, root in roots.items()}
    rows = [row for horizon in HORIZONS for row in compared(versions, horizon, given.rounds)]
    for version in versions.values():
        version.end()
    value = {"rows": rows, "limits": limits(rows)}
    if given.out:
        given.out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
