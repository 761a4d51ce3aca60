"""Observations of steps from features of one row a second, as the published benchmarks make them.

The observation at a time is the concatenated rows of the seconds around it. Beyond a border the
nearest row is repeated, or, as the reference loader does, the last one of those around the time. If
no step ends more than half a second after the last row, steps beyond it are only a matter of
rounding and are observed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import Border, observed_rows
from cefito.data.annotations import Step
from cefito.data.readers.archives import FeatureArray, FeatureError

__all__ = [
    "Beyond",
    "is_beyond",
    "is_rounding",
    "kept_steps",
    "observe",
]

Beyond = Literal["drop", "rewrite", "error"]
"""Policy for steps beyond the features.

drop leaves them out; rewrite replaces them by the step before, features and label, as the reference
loader does; error refuses them.
"""


def is_beyond(step: Step, rows: int) -> bool:
    """Whether a step's rounded end is not below the number of rows."""
    return round(step.end) >= rows


def is_rounding(steps: Sequence[Step], rows: int) -> bool:
    """Whether every step ends at most half a second after the features."""
    return max(step.end for step in steps) <= rows + 0.5


def kept_steps(steps: Sequence[Step], rows: int, beyond: Beyond) -> list[int]:
    """Indices of the step at each place of a video, given the policy for steps beyond the features.

    `rewrite` applies the rule of the unified protocol's reference loader to the whole video: a step
    beyond the features becomes a copy of the one before it; at the beginning it is dropped, and the
    last step is repeated instead. (The loader applies it to each window; windows that begin at such
    a step differ.)

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
    """Make the observations [L, S, seconds · D] at times [L, S] of a video, as they are stored."""
    rows, last = features.rows, features.rows - 1
    around = np.stack(
        [
            observed_rows(
                [min(time, last) for time in each], rows=rows, seconds=seconds, border=border
            )
            for each in times
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
