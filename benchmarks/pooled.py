"""Scores of one version of the recogniser less those of another, in the mean of data sets.

Reads what `cefito compare --recognisers` wrote for each data set, of both versions on the same test
videos. Videos are drawn anew within each data set, and both versions are scored on the same ones.

    python benchmarks/pooled.py --now FILE [FILE …] --before FILE [FILE …] --out FILE
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.evaluation.statistics import DRAWS, draws_interval

Floats = NDArray[np.float64]
_SCORES = {
    "frame": ("right", "rows"),
    "edit": ("edit", "videos"),
    "f1_50": ("found_50", "half"),
    "current": ("current_right", "rows"),
    "next": ("next_right", "asked"),
}
"""Each score with its sum and divisor in files that were written before `sums` were."""


def counts(seed: dict[str, Any], score: str) -> Floats:
    """Return sums and divisors of a score [V, 2]."""
    if "sums" in seed:
        return np.array(seed["sums"][score])
    return np.array([seed["columns"][name] for name in _SCORES[score]]).T


def drawn(report: dict[str, Any], score: str, videos: NDArray[np.integer]) -> Floats:
    """Return a score of the recogniser over drawn videos [draws, V], mean over seeds, per cent."""
    seeds = report["videos"]["recogniser"].values()
    sums = [counts(seed, score)[videos].sum(axis=1) for seed in seeds]  # [draws, 2]
    return 100 * np.mean([one[:, 0] / one[:, 1] for one in sums], axis=0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    for name in ("now", "before"):
        parser.add_argument(f"--{name}", type=Path, nargs="+", required=True)
    given = parser.parse_args(arguments)
    pairs = [
        [json.loads(path.read_text()) for path in paths]
        for paths in zip(given.now, given.before, strict=True)
    ]
    generator, draws = np.random.default_rng(0), []
    for now, before in pairs:
        assert now["test_videos"] == before["test_videos"], "the test videos differ"
        count = len(now["test_videos"])
        # the first draw is the videos as they are
        draws.append(np.vstack([np.arange(count), generator.integers(count, size=(DRAWS, count))]))
    differences = {}
    for score in _SCORES:
        less = [
            drawn(now, score, videos) - drawn(before, score, videos)
            for (now, before), videos in zip(pairs, draws, strict=True)
        ]
        mean = np.mean(less, axis=0)
        low, high = draws_interval(mean[1:])
        differences[score] = {
            name: round(float(value), 2)
            for name, value in (("mean", mean[0]), ("low", low), ("high", high))
        }
    report: dict[str, Any] = {"command": "python benchmarks/pooled.py --now … --before …"}
    report |= {name: [path.name for path in getattr(given, name)] for name in ("now", "before")}
    common.write_report(report | {"differences": differences}, given.out)


if __name__ == "__main__":
    main()
