"""Observations of steps from features of one row a second, as the published benchmarks make them.

The observation at a time is the rows of the seconds around the rounded time, concatenated: three by
default, so that 512 numbers a second give 1536. Before the first and behind the last row, that row
is repeated. Times are rounded to the nearest second, halves to the even one. A step whose rounded
end is not below the number of rows lies beyond the features; where no step of the video ends more
than half a second behind the last row's second, which is but the rounding of its length, such steps
are observed at the last row instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cefito.data.readers.archives import FeatureArray, FeatureError
from cefito.data.videos import Step
from cefito.errors import ConfigError

__all__ = [
    "Beyond",
    "check_beyond",
    "is_beyond",
    "is_rounding",
    "kept_steps",
    "observe",
    "observed_rows",
]

Beyond = Literal["drop", "rewrite", "error"]
"""What becomes of steps beyond the features.

They are left out; or replaced by the step before, features and label, as the reference loader does;
or an error.
"""


def check_beyond(beyond: str) -> None:
    """Refuse an unknown policy.

    Raises:
        ConfigError: It is none of drop, rewrite, error.
    """
    if beyond not in get_args(Beyond):
        raise ConfigError(
            f"beyond: unknown policy {beyond!r}; expected one of {', '.join(get_args(Beyond))}."
        )


def is_beyond(step: Step, rows: int) -> bool:
    """Whether a step's rounded end is not below the number of rows."""
    return round(step.end) >= rows


def is_rounding(steps: Sequence[Step], rows: int) -> bool:
    """Whether all steps end within half a second behind the features, or before."""
    return max(step.end for step in steps) <= rows + 0.5


def kept_steps(steps: Sequence[Step], rows: int, beyond: Beyond) -> list[int]:
    """Which step stands at each place once those beyond the features are dealt with.

    `rewrite` is the rule of the unified protocol's reference loader, applied to the whole video: a
    step beyond the features becomes a copy of what stands before it; at the beginning it is
    dropped, and the last step is repeated in its stead. (The loader applies it to each window;
    windows that begin at such a step differ.)

    Args:
        steps: The video's steps.
        rows: Seconds of features.
        beyond: `drop` or `rewrite`; for `error` look with `is_beyond` first.

    Returns:
        Places in `steps`; for `rewrite` as many as there are steps, unless all are beyond.
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


def observed_rows(times: Sequence[float], *, rows: int, seconds: int) -> NDArray[np.int64]:
    """Rows of the observation at each time.

    Args:
        times: Seconds, [S].
        rows: Seconds of features, N.
        seconds: Rows in one observation, odd.

    Returns:
        Indices in [0, N), int64 [S, seconds].
    """
    centres = np.array([round(time) for time in times], dtype=np.int64).reshape(-1, 1)
    around: NDArray[np.int64] = np.clip(centres + np.arange(seconds) - seconds // 2, 0, rows - 1)
    return around


def observe(
    features: FeatureArray, times: Sequence[Sequence[float]], *, seconds: int, precision: str
) -> NDArray[np.floating[Any]]:
    """Observations at times of a video, as a data set stores them; the one place they are made.

    Args:
        features: The opened features; their rows are read here, once.
        times: Seconds, [L, S]: lists of equally many; what lies behind the last row is taken for
            its time.
        seconds: Rows in one observation, odd.
        precision: Type in which they are stored, float16 or float32.

    Returns:
        Of that type, [L, S, seconds · D].

    Raises:
        FeatureError: The file is damaged, a row that is needed holds NaN or infinity, or numbers
            that the type cannot hold.
    """
    rows, last = features.rows, features.rows - 1
    around = np.stack(
        [
            observed_rows([min(time, last) for time in each], rows=rows, seconds=seconds)
            for each in times
        ]
    )
    wanted, places = np.unique(around, return_inverse=True)
    read = features.read(wanted)
    with np.errstate(over="ignore"):
        stored = read.astype(precision)
    if not np.isfinite(stored).all():
        raise FeatureError(
            "too large for float16",
            f"{features.path}: holds numbers above 65504, which float16 cannot store. Prepare in "
            "precision float32.",
        )
    return stored[places.reshape(-1)].reshape(*around.shape[:2], seconds * read.shape[1])
