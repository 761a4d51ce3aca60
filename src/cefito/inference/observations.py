"""How a run's observations were made of rows of features, and queries made in the same way.

`cefito data prepare` notes it with the data set and the run: the number of rows, one a second, that
are joined, and the stored type. A query is cut by the function that cut the data set, so both are
equal to the bit.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cefito.data.readers.archives import FeatureArray, load_features
from cefito.data.readers.assemble import PRECISIONS
from cefito.data.readers.observing import observe
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.runs.run import Run

__all__ = ["FeatureLayout", "Precision", "check_width", "feature_layout", "query_from_features"]

Precision = Literal["float16", "float32"]
"""Types in which observations are stored."""
_ROUNDING = 0.5  # seconds by which a video may be longer than its rows, whose number is rounded


@dataclass(frozen=True)
class FeatureLayout:
    """How an observation is made of features with one row a second.

    Attributes:
        seconds: Number of rows that are joined, around the rounded time; odd.
        width: Numbers in a row.
        precision: Stored type; None if it is unknown.
    """

    seconds: int
    width: int
    precision: str | None = None

    def __str__(self) -> str:
        if self.seconds == 1:
            return f"1 row of {self.width}"
        return f"{self.seconds} rows of {self.width} joined"


def feature_layout(run: Run) -> FeatureLayout | None:
    """Return how the observations of a run were made of features; None if the run does not say."""
    observed = run.info.dataset.observed or {}
    seconds, precision = observed.get("seconds"), observed.get("precision")
    size = run.planner.observation_dim
    if type(seconds) is not int or seconds < 1 or seconds % 2 == 0 or size % seconds:
        return None
    return FeatureLayout(
        seconds=seconds,
        width=size // seconds,
        precision=precision if precision in PRECISIONS else None,
    )


def check_width(run: Run, width: int, place: str) -> None:
    """Refuse observations of another size than the run's.

    Args:
        run: The run.
        width: Numbers in one observation.
        place: Beginning of the message, such as "observations have".

    Raises:
        RunError: Another size; the message says how the run's observations are joined.
    """
    layout, size = feature_layout(run), run.planner.observation_dim
    if width == size:
        return
    if layout is None or layout.seconds == 1:
        raise RunError(f"{place} {width} features; this run was trained on {size}.")
    if width == layout.width:
        raise RunError(
            f"{place} {width} features, one row; this run's observations are {layout}: the rows of "
            "the seconds around a time. Join them, or give the file of all rows and two times.",
            setting="features",
        )
    raise RunError(
        f"{place} {width} features; this run was trained on {size}, which are {layout}. Make the "
        "observations in the same way."
    )


def query_from_features(
    run: Run,
    features: Path | str,
    *,
    start: float,
    end: float,
    seconds: int | None = None,
    precision: Precision | None = None,
) -> Queries:
    """Make the query of two times of a video from its features.

    The observations are cut as those of the run's data set were, to the bit: the rows around the
    rounded time, the first and last row repeated at the borders. An end within half a second after
    the last row counts as its time.

    Args:
        run: The run; the features must be of the model that it was trained with.
        features: `.npy` or `.npz` with one row a second, [seconds of the video, D].
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        seconds: Rows that make one observation, for runs that do not say it.
        precision: Stored type of the run's data set, for runs that do not say it; by default
            float16.

    Raises:
        ConfigError: Times outside of the features, or `seconds` and `precision` that contradict
            the run or are invalid.
        DataError: The file is missing, damaged, or holds NaN in the rows that are needed.
        RunError: The run does not say how its observations were made, or rows of another width.
    """
    loaded = load_features(Path(features))
    layout = _layout_of(run, loaded, seconds, precision)
    _check_times(loaded, start, end)
    stored = layout.precision or "float16"
    pair = observe(loaded, [[start], [end]], seconds=layout.seconds, precision=stored)
    if layout.precision is None:
        logging.getLogger(__name__).warning(
            "the run does not say in which precision its observations are stored; float16 is "
            "assumed, the default of data sets"
        )
    first, second = pair.astype(np.float32)
    return Queries(initial=first, goal=second)


def _layout_of(
    run: Run, features: FeatureArray, seconds: int | None, precision: str | None
) -> FeatureLayout:
    """Return how to join the rows of a file: from the run, otherwise from the arguments."""
    kept, size = feature_layout(run), run.planner.observation_dim
    if seconds is not None and (seconds < 1 or seconds % 2 == 0):
        raise ConfigError(
            f"{seconds} rows in one observation: expected an odd number, such as 3.",
            setting="seconds",
        )
    if kept is None:
        if seconds is None:
            raise RunError(_unknown_layout(run, features), setting="seconds")
        if seconds * features.width != size:
            raise RunError(
                f"{features.path}: rows have {features.width} features; {seconds} of them joined "
                f"do not make the {size} of this run's observations.",
                setting="seconds",
            )
        return FeatureLayout(seconds=seconds, width=features.width, precision=precision)
    for name, given, known in (
        ("seconds", seconds, kept.seconds),
        ("precision", precision, kept.precision),
    ):
        if given is not None and known is not None and given != known:
            raise ConfigError(
                f"{name} {given}: this run's observations are {kept}, stored with {name} {known}. "
                "Leave it out.",
                setting=name,
            )
    if features.width != kept.width:
        raise RunError(
            f"{features.path}: rows have {features.width} features; this run's observations are "
            f"{kept}. Give features of the model that the run was trained with, one row a second."
        )
    return replace(kept, precision=kept.precision or precision)


def _unknown_layout(run: Run, features: FeatureArray) -> str:
    """Return the message that a run does not say how its observations were made."""
    size, width = run.planner.observation_dim, features.width
    count, rest = divmod(size, width)
    message = f"{run.folder}: does not say how its observations of {size} numbers were made. "
    if rest or count % 2 == 0:
        return message + (
            f"Rows of {width}, as in {features.path}, do not make them: give two observations "
            "instead."
        )
    return message + f"If they are {FeatureLayout(count, width)}, say {count} seconds."


def _check_times(features: FeatureArray, start: float, end: float) -> None:
    """Refuse times that no step of a prepared data set has."""
    there = f"{features.path}, which has {features.rows} rows, one a second."
    for name, time in (("start", start), ("end", end)):
        if not math.isfinite(time) or time < 0 or time > features.rows + _ROUNDING:
            raise ConfigError(f"second {time:g} is outside of {there}", setting=name)
    if not start < end:
        raise ConfigError(
            f"the end (second {end:g}) must be after the start (second {start:g}).", setting="end"
        )
