"""Queries from videos of a data set, from files and from rows of features; constraints by name.

A query is cut by the function that cut the data set, so both are equal to the bit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import StrictBool, StrictInt, StrictStr, create_model

from cefito.arrays import Border
from cefito.data.annotations import Taxonomy, nfc
from cefito.data.readers.archives import FeatureArray, load_features
from cefito.data.readers.assemble import PRECISIONS
from cefito.data.readers.observing import observe
from cefito.data.vocabulary import find_action, find_actions
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import check_array, load_npy
from cefito.planners.base import Queries
from cefito.runs.matching import DatasetMatch, match_dataset
from cefito.runs.run import Run
from cefito.search.constraints import Constraints, EachAction, OneAction, declared
from cefito.settings import Settings

__all__ = [
    "ActionNames",
    "FeatureLayout",
    "Name",
    "NamedConstraints",
    "Pairs",
    "Pins",
    "Precision",
    "check_width",
    "feature_layout",
    "parse_constraints",
    "query_from_features",
    "query_from_files",
    "query_from_video",
    "query_from_window",
]

Name = StrictInt | StrictStr
"""An id, or a name as `cefito.data.vocabulary` reads it."""
Pins = tuple[tuple[StrictInt, Name], ...]
ActionNames = tuple[Name, ...]
Pairs = tuple[tuple[Name, Name], ...]


def _named(kind: Any) -> Any:
    """Return the type of a field of `Constraints` with names in the place of actions."""
    if kind in (OneAction, EachAction):
        return Name
    if get_origin(kind) is tuple:
        parts = tuple(part if part is ... else _named(part) for part in get_args(kind))
        return tuple.__class_getitem__(parts)
    return {int: StrictInt, bool: StrictBool}[kind]


_FIELDS: Any = {
    name: (_named(kind), getattr(Constraints, name)) for name, (kind, _) in declared().items()
}


class NamedConstraints(create_model("_Fields", __base__=Settings, **_FIELDS)):  # type: ignore[misc]
    """`Constraints` with actions by name or id, field by field; also their form in JSON.

    A name of several actions means all of them in `forbidden` and `before`, and is refused
    elsewhere: the types of the fields of `Constraints` say which.
    """

    def with_more(self, other: NamedConstraints) -> NamedConstraints:
        """Return the constraints of both."""
        return NamedConstraints(
            **{
                name: value + more if isinstance(value, tuple) else more or value
                for (name, value), (_, more) in zip(self, other, strict=True)
            }
        )

    def resolved(self, taxonomy: Taxonomy, *, task: int | None = None) -> Constraints:
        """Return the constraints by ids; names are looked up in the task first.

        Raises:
            ConfigError: No such action, or several of a name that must mean one.
        """

        def ids(kind: Any, value: Any, setting: str) -> Sequence[Any]:
            """Return all meanings of a value of a kind."""
            if kind == OneAction:
                return [find_action(taxonomy, value, task=task, setting=setting)]
            if kind == EachAction:
                return find_actions(taxonomy, value, task=task, setting=setting)
            if get_origin(kind) is not tuple:
                return [value]
            kinds = get_args(kind)
            if kinds[1:] == (...,):  # every meaning of every item, each once
                every = [one for item in value for one in ids(kinds[0], item, setting)]
                return [tuple(dict.fromkeys(every))]
            return list(product(*map(ids, kinds, value, [setting] * len(kinds))))

        return Constraints(
            **{name: ids(declared()[name][0], value, name)[0] for name, value in self}
        )


def parse_constraints(
    taxonomy: Taxonomy, given: Mapping[str, Any], *, task: int | None = None
) -> NamedConstraints:
    """Parse constraints from the text of the command line, by field."""

    def parsed(kind: Any, value: Any) -> Any:
        if kind == Pins:
            return tuple(map(_pin, value))  # STEP=ACTION, steps counted from 1
        if kind == Pairs:  # A,B, split at the comma with an action on each side
            return tuple(_order(entry, taxonomy, task) for entry in value)
        return value

    kinds = NamedConstraints.model_fields
    return NamedConstraints(
        **{name: parsed(kinds[name].annotation, value) for name, value in given.items()}
    )


def _pin(entry: str) -> tuple[int, str]:
    step, _, action = entry.partition("=")
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", step) or not action.strip():
        expected = "expected a step, counted from 1, and an action, as in 1=17 or 1='add ham'."
        raise ConfigError(f"{entry!r}: {expected}", setting="pinned")
    return int(step), action


def _order(entry: str, taxonomy: Taxonomy, task: int | None) -> tuple[str, str]:
    parts = entry.split(",")
    splits = [(",".join(parts[:place]), ",".join(parts[place:])) for place in range(1, len(parts))]
    if len(splits) == 1 and all(part.strip() for part in parts):
        return splits[0]
    known = [split for split in splits if all(_known(part, taxonomy, task) for part in split)]
    if len(known) != 1:
        more = "; it is ambiguous, so give ids" if known else ", as in 3,17 or 'add ham,fill bowl'"
        raise ConfigError(
            f"{entry!r}: expected two actions with a comma between{more}.", setting="before"
        )
    return known[0]


def _known(given: str, taxonomy: Taxonomy, task: int | None) -> bool:
    try:
        find_actions(taxonomy, given, task=task)
    except ConfigError:
        return False
    return True


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
    features: Path | str | FeatureArray,
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
        features: `.npy` or `.npz` with one row a second, [seconds of the video, D], or what was
            loaded from it.
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        seconds: Rows that make one observation, for runs that do not say it.
        precision: Stored type of the run's data set, likewise; by default float16.

    Raises:
        ConfigError: Invalid times, or `seconds` and `precision` that contradict the run.
        DataError: The file is missing, damaged, or holds NaN in the rows that are needed.
        RunError: The run does not say how its observations were made, or rows of another width.
    """
    loaded = features if isinstance(features, FeatureArray) else load_features(Path(features))
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


def query_from_video(
    run: Run, video_id: str, from_step: int = 0, dataset: Path | str | None = None
) -> tuple[Queries, NDArray[np.int64] | None]:
    """Return the query of a window of a video, and its annotated actions [T] in the run's ids.

    If the run does not know all of these actions, they are None and a warning says so.

    Args:
        run: The run; its horizon T is the length of the window.
        video_id: A video of the data set.
        from_step: Number of the window's first step, counted from 0.
        dataset: A data set with the same kind of observations, by default the run's.

    Raises:
        ConfigError: No such video, or too few steps after `from_step`.
        RunError: The data set is missing, or the run cannot be used on it.
    """
    return query_from_window(match_dataset(run, run.dataset(dataset)), video_id, from_step)


def query_from_window(
    match: DatasetMatch, video_id: str, from_step: int = 0
) -> tuple[Queries, NDArray[np.int64] | None]:
    """Return the query of a window of a matched data set, see `query_from_video`."""
    opened, wanted = match.dataset, (video_id, nfc(video_id))
    numbers = (number for number, video in enumerate(opened.videos) if video.video_id in wanted)
    index = next(numbers, None)
    if index is None:
        raise ConfigError(
            f"no video '{video_id}' in {opened.folder}. Choose one of its videos.jsonl.",
            setting="video",
        )
    horizon, steps = match.run.horizon, opened.videos[index].steps
    last = len(steps) - horizon
    if not 0 <= from_step <= last:
        remedy = f"The last possible start is {last}." if last >= 0 else "It is too short."
        raise ConfigError(
            f"video '{video_id}' has {len(steps)} steps; {horizon} from step {from_step} (counted "
            f"from 0) do not fit. {remedy}",
            setting="from_step",
        )
    row = int(opened.first_row[index]) + from_step
    query = Queries(
        initial=opened.start[row][None].astype(np.float32),
        goal=opened.end[row + horizon - 1][None].astype(np.float32),
    )
    actions = [step.action for step in steps[from_step : from_step + horizon]]
    truth = match.vocabulary.actions[opened.videos[index].task, actions]
    if (truth >= 0).all():
        return query, truth
    names = opened.taxonomy.names([a for a, known in zip(actions, truth, strict=True) if known < 0])
    logging.getLogger(__name__).warning(
        "video '%s': the run does not know all of its actions (task '%s', %s), so it cannot plan "
        "them",
        video_id,
        opened.taxonomy.tasks[opened.videos[index].task].name,
        ", ".join(f"'{name}'" for name in dict.fromkeys(names)),
    )
    return query, None


def query_from_files(initial: Path | str, goal: Path | str, run: Run | None = None) -> Queries:
    """Return the query of two .npy files, each one observation [E].

    Raises:
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
        RunError: Another width than that of the run, if one is given.
    """
    initial, goal = Path(initial), Path(goal)
    first, second = _observation(initial), _observation(goal)
    if run is not None:
        for path, array in ((initial, first), (goal, second)):
            check_width(run, array.shape[1], f"{path} has")
    if first.shape != second.shape:
        raise DataError(f"{initial} has {first.shape[1]} features, {goal} {second.shape[1]}.")
    return Queries(initial=first, goal=second)


def _observation(path: Path) -> NDArray[np.float32]:
    """Return the observation of a file, [1, E]."""
    array = load_npy(path)
    array = array[0] if array.ndim == 2 and len(array) == 1 else array
    if array.ndim != 1:
        raise DataError(f"{path}: has shape {list(array.shape)}; expected one observation [E].")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused
            array = array.astype(np.float32)
    return check_array(array[None], shape=(1, None), place=str(path))
