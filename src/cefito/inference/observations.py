"""How a run's observations were made of rows of features, and queries made in the same way.

A query is cut by the function that cut the data set, so both are equal to the bit.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cefito.data.readers.archives import FeatureArray, load_features
from cefito.data.readers.assemble import PRECISIONS
from cefito.data.readers.observing import Border, observe
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.runs.run import Run

__all__ = ["FeatureLayout", "Precision", "check_width", "feature_layout", "query_from_features"]

Precision = Literal["float16", "float32"]
"""Types in which observations are stored."""
_ROUNDING = 0.5  # seconds by which a video may be longer than its rows, whose number is rounded


@dataclass(frozen=True)
class FeatureLayout:
    """How an observation is made of features with one row a second."""

    seconds: int  # number of rows that are joined, around the rounded time; odd
    width: int  # numbers in a row
    precision: str | None = None  # stored type; None if it is unknown
    border: Border = "nearest"  # row repeated beyond a border

    def __str__(self) -> str:
        one = self.seconds == 1
        return f"1 row of {self.width}" if one else f"{self.seconds} rows of {self.width} joined"


def feature_layout(run: Run) -> FeatureLayout | None:
    """Return how the observations of a run were made of features; None if the run does not say."""
    observed = run.info.dataset.observed or {}
    seconds, precision = observed.get("seconds"), observed.get("precision")
    size = run.planner.observation_dim
    if type(seconds) is not int or seconds < 1 or seconds % 2 == 0 or size % seconds:
        return None
    return FeatureLayout(
        seconds,
        size // seconds,
        precision if precision in PRECISIONS else None,
        "last" if observed.get("border") == "last" else "nearest",
    )


def check_width(run: Run, width: int, place: str) -> None:
    """Refuse observations of another size; `place` begins the message ("observations have")."""
    layout, size = feature_layout(run), run.planner.observation_dim
    if width == size:
        return
    message, setting = f"{place} {width} features; this run was trained on {size}", ""
    if layout is not None and layout.seconds > 1:
        message += f", which are {layout}"
        if width == layout.width:
            message += ". Join the rows around a time, or give the file of all rows and two times"
            setting = "features"
    raise RunError(f"{message}.", setting=setting)


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
    rounded time, with the same row repeated beyond a border. An end within half a second after
    the last row counts as its time.

    Args:
        run: The run; the features must be of the model that it was trained with.
        features: `.npy` or `.npz` with one row a second, [seconds of the video, D].
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        seconds: Rows that make one observation, for runs that do not say it.
        precision: Stored type of the run's data set, likewise; by default float16.

    Raises:
        ConfigError: Invalid times, or `seconds` and `precision` that contradict the run.
        DataError: The file is missing, damaged, or holds NaN in the rows that are needed.
        RunError: The run does not say how its observations were made, or rows of another width.
    """
    loaded = load_features(Path(features))
    layout = _layout_of(run, loaded, seconds, precision)
    _check_times(loaded, start, end)
    stored = layout.precision or "float16"
    pair = observe(
        loaded,
        [[start], [end]],
        seconds=layout.seconds,
        precision=stored,
        border=layout.border,
    )
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
        raise ConfigError(f"seconds {seconds}: expected an odd number.", setting="seconds")
    for name, given in (("seconds", seconds), ("precision", precision)):
        known = getattr(kept, name, None)
        if given is not None and known is not None and given != known:
            raise ConfigError(
                f"{name} {given}: this run has {name} {known} ({kept}). Leave it out.",
                setting=name,
            )
    if kept is not None:
        seconds, precision = kept.seconds, kept.precision or precision
    if seconds is None:
        raise RunError(_unknown_layout(run, features), setting="seconds")
    border = "nearest" if kept is None else kept.border
    layout = FeatureLayout(seconds, features.width, precision, border)
    if seconds * features.width != size:
        raise RunError(
            f"{features.path}: {layout} cannot make the {size} numbers of this run's observations. "
            "Give features of the run's model.",
            setting="seconds" if kept is None else "",
        )
    return layout


def _unknown_layout(run: Run, features: FeatureArray) -> str:
    size, width = run.planner.observation_dim, features.width
    count, rest = divmod(size, width)
    remedy = f"If they are {FeatureLayout(count, width)}, say {count} seconds."
    if rest or count % 2 == 0:
        remedy = f"Rows of {width}, as in {features.path}, do not make them: give two observations."
    return f"{run.folder}: does not say how its observations of {size} numbers were made. {remedy}"


def _check_times(features: FeatureArray, start: float, end: float) -> None:
    """Refuse times that no step of a prepared data set has."""
    for name, time in (("start", start), ("end", end)):
        if not 0 <= time <= features.rows + _ROUNDING:  # NaN neither
            raise ConfigError(
                f"second {time:g} is outside of {features.path}, which has {features.rows} rows.",
                setting=name,
            )
    if not start < end:
        raise ConfigError(f"the end ({end:g}) must be after the start ({start:g}).", setting="end")
