"""Observations of steps from features of one row a second, as the published benchmarks make them.

Of features with another number of rows a second, the row in the middle of each second is taken.

The observation at a time is the concatenated rows of the seconds around it. Beyond a border the
nearest row is repeated, or, as the reference loader does, the last one of those around the time. If
no step ends more than half a second after the last row, steps beyond it come from rounding and are
observed at that row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import Border, observed_rows
from cefito.data.annotations import Step
from cefito.data.readers.feature_files import FeatureArray, FeatureError
from cefito.errors import DataError

Beyond = Literal["drop", "rewrite", "error"]
"""Policy for steps beyond the features.

drop leaves them out; rewrite replaces them by the step before, features and label, as the reference
loader does; error refuses them.
"""

_SHORTEST = 5.0  # seconds that a video needs to count
_EARLY = 1.5  # rows for each second until the last step, where steps end early in all films
_SPREAD = 0.15  # standard deviation of the logarithm of these, of files with one rate
_SHOWN = 3  # shapes in a message


def check_layout(
    features: Path, shapes: Sequence[tuple[int, int]], ends: Sequence[float], rate: float | None
) -> list[str]:
    """Refuse features that are not [seconds, D], or not at one row a second if no rate is given.

    Rows are compared with the seconds at which the last step of each video ends. Films may go on
    for long after it, so only numbers of rows that grow with these ends are evidence of another
    rate. Without such evidence, a note (returned) tells of numbers of rows that differ much.

    Args:
        features: Folder, for messages.
        shapes: Shape of the features of each of N videos.
        ends: Second at which the last step of each ends.
        rate: Rows a second, if they were given.
    """
    pairs = [(shape, end) for shape, end in zip(shapes, ends, strict=True) if end >= _SHORTEST]
    if not pairs:
        return []
    rows, widths = np.array([shape for shape, _ in pairs]).T  # [N], [N]
    last = np.array([end for _, end in pairs])
    ratios = rows / last  # rows a second, or more if the film goes on
    low, high, middle = float(ratios.min()), float(ratios.max()), float(np.median(ratios))
    rates = f"{low:.3g} to {high:.3g} rows for each second until the last step"
    if len(pairs) > 1 and (rows == rows[0]).all() and (widths >= 0.8 * last - 1).all():
        # the second axis may be time: it differs between videos, or ends with their steps
        common = Counter(widths.tolist()).most_common(1)[0][1]
        differs = common <= len(rows) / 2 and (low < 0.95 or high > _EARLY)
        ends_there = rate is None and low > _EARLY and bool((widths <= 1.2 * last + 1).all())
        if differs or ends_there:
            listed = ", ".join(str(list(shape)) for shape, _ in pairs[:_SHOWN])
            problem = f"the files hold {listed}{' …' * (len(pairs) > _SHOWN)}"
            problem += ", with the same first axis in all: this looks like [D, seconds]"
            remedy, setting = "Say that they are transposed", "transposed"
            if not differs:
                remedy, setting = f"{remedy}, or give the rows a second", "feature_rate, transposed"
            raise DataError(f"{features}: {problem}. {remedy}.", setting=setting)
    if rate is not None:
        return []
    # of files with one rate, rows vary as ends do; steps may end early in all films alike
    near = 0.9 <= middle <= 3
    most = min(_SPREAD / 3 if near else _SPREAD, float(np.log(rows).std()) / 3)
    grow = len(pairs) > (4 if near else 2) and np.log(ratios).std() <= most
    if grow and (high < 1 or not 0.9 <= middle <= _EARLY):
        problem = f"the files have {rates}, so they seem to have at most {low:.3g} rows a second"
        remedy = "Give their number, or 1 if all films go on that long after their last step"
        raise DataError(f"{features}: {problem}. {remedy}.", setting="feature_rate")
    if low >= 0.98 and middle <= 1.2:
        return []
    said = "they were read as one row a second. If that is wrong, give the feature rate"
    return [f"the features have {rates}; {said}"]


def is_beyond(step: Step, rows: int) -> bool:
    """Whether a step's rounded end is not below the number of rows."""
    return round(step.end) >= rows


def kept_steps(steps: Sequence[Step], rows: int, beyond: Beyond) -> list[int]:
    """Indices of the step at each place of a video, given the policy for steps beyond the features.

    `rewrite` applies the rule of the unified protocol's reference loader to the whole video: a step
    beyond the features becomes a copy of the one before it; at the beginning it is dropped, and the
    last step is repeated instead. (The loader applies it to each window; windows that begin at such
    a step differ.)

    Args:
        steps: Steps of a video.
        rows: Seconds that its features cover.
        beyond: Policy.
    """
    if beyond != "rewrite":
        return [place for place, step in enumerate(steps) if not is_beyond(step, rows)]
    kept: list[int] = []
    for place, step in enumerate(steps):
        if not is_beyond(step, rows):
            kept.append(place)
        elif kept:
            kept.append(kept[-1])
    return kept + kept[-1:] * (len(steps) - len(kept))


def observe(
    features: FeatureArray,
    times: Sequence[Sequence[float]],
    *,
    seconds: int,
    precision: str,
    border: Border = "nearest",
) -> NDArray[np.floating[Any]]:
    """Make the observations [L, S, seconds · D] at times [L, S] of a video, as they are stored.

    Args:
        features: Rows of a video.
        times: L lists of S times in seconds.
        seconds: Odd number of rows of an observation.
        precision: "float16" or "float32".
        border: What stands for rows before the first and after the last.
    """
    rows, last = features.rows, features.rows - 1
    around = np.stack(
        [
            observed_rows(
                [min(time, last) for time in moments], rows=rows, seconds=seconds, border=border
            )
            for moments in times
        ]
    )  # [L, S, seconds]
    wanted, places = np.unique(around, return_inverse=True)
    read = features.read(wanted)  # [R, D]
    with np.errstate(over="ignore"):
        stored = read.astype(precision)
    if not np.isfinite(stored).all():
        problem = f"{features.path}: holds numbers above 65504, which float16 cannot store."
        raise FeatureError("too large for float16", f"{problem} Prepare in precision float32.")
    return stored[places.reshape(-1)].reshape(*around.shape[:2], seconds * read.shape[1])
