"""How the observations of a run were made of rows of features, and queries made in the same way.

What `cefito data prepare` says of it is kept with the data set and the run: how many rows, one a
second, are joined, and the type in which they are stored. A query is cut by the very function that
cut the data set, so that both are equal to the bit.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cefito.data.readers.archives import FeatureArray, open_features
from cefito.data.readers.assemble import PRECISIONS
from cefito.data.readers.observing import observe
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.runs.run import Run

__all__ = ["Joined", "check_width", "joined", "query_from_features"]

Precision = Literal["float16", "float32"]
"""Types in which observations are stored."""
_ROUNDING = 0.5  # by so many seconds a video may be longer than its rows, whose number is rounded


@dataclass(frozen=True)
class Joined:
    """How an observation is made of features with one row a second.

    Attributes:
        seconds: Rows that are joined, around the rounded time; odd.
        width: Numbers of one row.
        precision: Type in which they are stored; None where it is not known.
    """

    seconds: int
    width: int
    precision: str | None = None

    def __str__(self) -> str:
        if self.seconds == 1:
            return f"1 row of {self.width}"
        return f"{self.seconds} rows of {self.width} joined"


def joined(run: Run) -> Joined | None:
    """How the observations of a run were made of features; None where the run does not say."""
    observed = run.info.dataset.observed or {}
    seconds, precision = observed.get("seconds"), observed.get("precision")
    size = run.planner.observation_dim
    if type(seconds) is not int or seconds < 1 or seconds % 2 == 0 or size % seconds:
        return None
    return Joined(
        seconds=seconds,
        width=size // seconds,
        precision=precision if precision in PRECISIONS else None,
    )


def check_width(run: Run, width: int, place: str) -> None:
    """Refuse observations of another size than those of a run, and say how these are made.

    Args:
        run: The run.
        width: Numbers in one observation.
        place: Where it stands, for the message.

    Raises:
        RunError: Another size, and the run says how its observations are joined. Where it does
            not, planners refuse it.
    """
    recipe, size = joined(run), run.planner.observation_dim
    if width == size or recipe is None or recipe.seconds == 1:
        return
    if width == recipe.width:
        raise RunError(
            f"{place} {width} features, one row; this run's observations are {recipe}: the rows "
            "of the seconds around a time, one behind the other. Join them, or give the file of "
            "all rows and the two times.",
            setting="features",
        )
    raise RunError(
        f"{place} {width} features; this run was trained on {size}, which are {recipe}. Give "
        "observations that are made in the same way."
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
    """The query of two moments of a video, of whose seconds there are features.

    The observations are cut as those of the run's data set were (`cefito data prepare`), to the
    bit: the rows around the rounded time, the first and last row repeated at the borders. An end
    within half a second behind the last row is taken for its time.

    Args:
        run: The run; it says how many rows are joined. No encoder is needed or asked for: the
            features must be those of the model that the run learned from.
        features: `.npy` or `.npz` with one row a second, [seconds of the video, D].
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        seconds: Rows that make one observation, for runs that do not say it.
        precision: Type in which the run's data set is stored, for runs that do not say it;
            otherwise float16, as is usual.

    Raises:
        ConfigError: Times that do not lie in the features, or `seconds` and `precision` that are
            not those of the run or cannot be.
        DataError: The file is missing, damaged, or holds NaN in the rows that are needed.
        RunError: The run does not say how its observations were made, or rows of another width.
    """
    path = Path(features)
    with open_features(path) as opened:
        recipe = _recipe(run, opened, seconds, precision)
        _check_times(opened, start, end)
        pair = observe(
            opened,
            [[start], [end]],
            seconds=recipe.seconds,
            precision=recipe.precision or "float16",
        )
    if recipe.precision is None:
        logging.getLogger(__name__).warning(
            "the run does not say in which precision its observations are stored; float16 is "
            "taken, as data sets are usually prepared"
        )
    first, second = pair.astype(np.float32)
    return Queries(initial=first, goal=second)


def _recipe(run: Run, features: FeatureArray, seconds: int | None, precision: str | None) -> Joined:
    """How to join the rows of a file: as the run says, or as is given where it does not."""
    kept, size = joined(run), run.planner.observation_dim
    if seconds is not None and (seconds < 1 or seconds % 2 == 0):
        raise ConfigError(
            f"{seconds} rows in one observation: expected an odd number, such as 3.",
            setting="seconds",
        )
    if precision is not None and precision not in PRECISIONS:
        raise ConfigError(
            f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}.",
            setting="precision",
        )
    if kept is None:
        if seconds is None:
            raise RunError(_unknown(run, features), setting="seconds")
        if seconds * features.width != size:
            raise RunError(
                f"{features.path}: rows have {features.width} features; {seconds} of them joined "
                f"do not make the {size} of this run's observations.",
                setting="seconds",
            )
        return Joined(seconds=seconds, width=features.width, precision=precision)
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
            f"{kept}. Give features of the model that the run learned from, one row a second."
        )
    return Joined(kept.seconds, kept.width, kept.precision or precision)


def _unknown(run: Run, features: FeatureArray) -> str:
    """That a run does not say how its observations were made, and what would fit."""
    size, width = run.planner.observation_dim, features.width
    count, rest = divmod(size, width)
    message = (
        f"{run.folder}: does not say how its observations of {size} numbers were made of features "
        "(they were given as they are, or it is of an earlier version). "
    )
    if rest or count % 2 == 0:
        return message + (
            f"Rows of {width}, as in {features.path}, do not make them: give two observations "
            "instead."
        )
    fitting = Joined(count, width)
    return message + f"If they are {fitting}, say {count} seconds."


def _check_times(features: FeatureArray, start: float, end: float) -> None:
    """Refuse times that no step of a prepared data set has."""
    for name, time in (("start", start), ("end", end)):
        if not math.isfinite(time) or time < 0:
            raise ConfigError(
                f"second {time:g} does not lie in {features.path}, which has {features.rows} rows, "
                "one a second.",
                setting=name,
            )
    if not start < end:
        raise ConfigError(
            f"the end (second {end:g}) must lie behind the start (second {start:g}).",
            setting="end",
        )
    if end > features.rows + _ROUNDING:
        raise ConfigError(
            f"second {end:g} lies behind {features.path}, which has {features.rows} rows, one a "
            "second.",
            setting="end",
        )
