"""Queries from videos of a data set, from files and from rows of features.

A query is cut by the function that cut the data set, so both are equal to the bit.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import Border, load_npy
from cefito.data.prepared import PreparedDataset
from cefito.data.readers.feature_files import FeatureArray, load_features
from cefito.data.readers.observing import observe
from cefito.data.vocabulary import nfc, similar_names
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import check_array
from cefito.parts.matching import DatasetMatch, match_dataset
from cefito.parts.opened import OpenedRun
from cefito.planners.base import Queries

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
        single = self.seconds == 1
        return f"1 row of {self.width}" if single else f"{self.seconds} rows of {self.width} joined"


def feature_layout(run: OpenedRun) -> FeatureLayout | None:
    """Return how the observations of a run were made of features; None if the run does not say."""
    observed = run.info.dataset.observed or {}
    seconds, precision = observed.get("seconds"), observed.get("precision")
    size = run.planner.observation_dim
    if type(seconds) is not int or seconds < 1 or seconds % 2 == 0 or size % seconds:
        return None
    return FeatureLayout(
        seconds,
        size // seconds,
        precision if precision in get_args(Precision) else None,
        "last" if observed.get("border") == "last" else "nearest",
    )


def check_width(run: OpenedRun, width: int, place: str) -> None:
    """Refuse observations of another size.

    Args:
        run: The run.
        width: Numbers of each observation.
        place: Begins the message, as "observations have".
    """
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
    run: OpenedRun,
    features: Path | str | FeatureArray,
    *,
    start: float | None,
    end: float | None,
    seconds: int | None = None,
    precision: Precision | None = None,
) -> Queries:
    """Make the query of two times of a video, or of one, from its features.

    The observations are cut as those of the run's data set were, to the bit: the rows around the
    rounded time, with the same row repeated beyond a border. An end within half a second after
    the last row counts as its time.

    Args:
        run: The run; the features must be of the model that it was trained with.
        features: `.npy` or `.npz`, [rows of the video, D], with as many rows a second as the
            run's features (one, unless a feature rate was given), or what was loaded from it.
        start: Second at which the first step begins; None if it is not known.
        end: Second at which the last step ends; None if it is not known.
        seconds: Rows that make one observation, for runs that do not say it.
        precision: Stored type of the run's data set, likewise; by default float16.

    Raises:
        ConfigError: Invalid times, or `seconds` and `precision` that contradict the run.
        DataError: The file is missing, damaged, or holds NaN in the rows that are needed.
        RunError: The run does not say how its observations were made, or rows of another width.
    """
    loaded = features if isinstance(features, FeatureArray) else features_of(run, Path(features))
    layout = _layout_of(run, loaded, seconds, precision)
    _check_times(loaded, start, end)
    observed = observe(
        loaded,
        [[time] for time in (start, end) if time is not None],
        seconds=layout.seconds,
        precision=layout.precision or "float16",
        border=layout.border,
    )
    if layout.precision is None:
        logging.getLogger(__name__).warning(
            "the run does not say in which precision its observations are stored; float16 is "
            "assumed, the default of data sets"
        )
    return query_of_ends(observed[:, 0], start, end, size=run.planner.observation_dim)


def run_rate(run: OpenedRun) -> float | None:
    """Return the rows of features a second of a run's data set; None if it does not say it."""
    rate = (run.info.dataset.observed or {}).get("feature_rate")
    return None if rate is None else float(rate)


def features_of(run: OpenedRun, path: Path, rate: float | None = None) -> FeatureArray:
    """Load a file of features with the axes of the files that a run was trained on.

    Args:
        run: The run.
        path: The file.
        rate: Its rows a second; those of the run's features by default.
    """
    transposed = bool((run.info.dataset.observed or {}).get("transposed"))
    return load_features(path, rate or run_rate(run) or 1.0, transposed=transposed)


def query_of_ends(
    observations: NDArray[np.floating[Any]], initial: object, goal: object, *, size: int
) -> Queries:
    """Return the query of the observations [n, E].

    Args:
        observations: Observations [n, E] of the ends that are known, the initial one first.
        initial: None if the initial observation is not known.
        goal: None if the goal is not known.
        size: E.
    """
    rows = iter(observations)
    first = None if initial is None else next(rows)
    last = None if goal is None else next(rows)
    return Queries.partial(size=size, initial=first, goal=last)


def _layout_of(
    run: OpenedRun, features: FeatureArray, seconds: int | None, precision: str | None
) -> FeatureLayout:
    """Return how to join the rows of a file: from the run, otherwise from the arguments."""
    kept, size = feature_layout(run), run.planner.observation_dim
    if seconds is not None and (seconds < 1 or seconds % 2 == 0):
        raise ConfigError(f"seconds {seconds}: expected an odd number.", setting="seconds")
    for name, asked in (("seconds", seconds), ("precision", precision)):
        recorded = getattr(kept, name, None)
        if asked is not None and recorded is not None and asked != recorded:
            raise ConfigError(
                f"{name} {asked}: this run has {name} {recorded} ({kept}). Leave it out.",
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


def _unknown_layout(run: OpenedRun, features: FeatureArray) -> str:
    size, width = run.planner.observation_dim, features.width
    count, remainder = divmod(size, width)
    remedy = f"If they are {FeatureLayout(count, width)}, say {count} seconds."
    if remainder or count % 2 == 0:
        remedy = f"Rows of {width}, as in {features.path}, do not make them: give two observations."
    return f"{run.place}: does not say how its observations of {size} numbers were made. {remedy}"


def _check_times(features: FeatureArray, start: float | None, end: float | None) -> None:
    """Refuse times that no step of a prepared data set has."""
    for name, time in (("start", start), ("end", end)):
        if time is not None and not 0 <= time <= features.rows + _ROUNDING:  # NaN neither
            raise ConfigError(
                f"second {time:g} is outside of {features.path}, which has {features.rows} rows.",
                setting=name,
            )
    if start is not None and end is not None and not start < end:
        raise ConfigError(f"the end ({end:g}) must be after the start ({start:g}).", setting="end")


def query_from_video(
    run: OpenedRun,
    video_id: str,
    from_step: int = 1,
    dataset: Path | str | None = None,
    *,
    goal: bool = True,
    done: bool = False,
) -> tuple[Queries, NDArray[np.int64] | None]:
    """Return the query of a window of a video, and its annotated actions [T] in the run's ids.

    If the run does not know all of these actions, they are None and a warning says so.

    Args:
        run: The run; the window has its horizon T, or for a run of several lengths the rest of
            the video, at most the longest length.
        video_id: A video of the data set.
        from_step: Number of the window's first step, counted from 1.
        dataset: A data set with the same kind of observations, by default the run's.
        goal: Whether the query has the goal observation.
        done: Whether it has the steps of the video before the window. Those that the run does not
            know are left out.

    Raises:
        ConfigError: No such video, or too few steps from `from_step` on.
        RunError: The data set is missing, or the run cannot be used on it.
    """
    match = match_dataset(run, run.dataset(dataset))
    return query_from_window(match, video_id, from_step, goal=goal, done=done)


def query_from_window(
    match: DatasetMatch,
    video_id: str,
    from_step: int = 1,
    to_step: int | None = None,
    *,
    goal: bool = True,
    done: bool = False,
) -> tuple[Queries, NDArray[np.int64] | None]:
    """Return the query of a window of a matched data set, see `query_from_video`.

    `to_step` is the number of its last step; None for the longest window of the run that fits.
    """
    opened, index = match.dataset, find_video(match.dataset, video_id)
    task, steps = opened.videos[index].task, opened.videos[index].steps
    least = match.run.shortest or match.run.horizon
    last = len(steps) - least + 1
    if not 1 <= from_step <= last:
        remedy = f"Start from step 1 to {last}." if last >= 1 else "It is too short."
        raise ConfigError(
            f"video '{video_id}' has {len(steps)} steps; {least} from step {from_step} (counted "
            f"from 1) do not fit. {remedy}",
            setting="from_step",
        )
    first = from_step - 1
    longest = min(match.run.horizon, len(steps) - first)
    length = longest if to_step is None else to_step - first
    if not least <= length <= longest:
        raise ConfigError(
            f"video '{video_id}': a window from step {from_step} cannot end at step {to_step} "
            f"(counted from 1). End it at step {first + least} to {first + longest}.",
            setting="to_step",
        )
    row = int(opened.first_row[index]) + first
    own_ids = match.vocabulary.actions[task, [step.action for step in steps]]  # −1 if unknown
    query = Queries.partial(
        size=opened.observation_dim,
        initial=opened.start[row],
        goal=opened.end[row + length - 1] if goal else None,
        done=[int(action) for action in own_ids[:first] if action >= 0] if done else None,
    )
    query = replace(query, scenes=opened.scenes([(index, first, length)]))
    actions = [step.action for step in steps[first : first + length]]
    truth = own_ids[first : first + length]
    if (truth >= 0).all():
        return query, truth
    names = opened.taxonomy.names(
        [a for a, own_id in zip(actions, truth, strict=True) if own_id < 0]
    )
    logging.getLogger(__name__).warning(
        "video '%s': the run does not know all of its actions (task '%s', %s), so it cannot plan "
        "them",
        video_id,
        opened.taxonomy.tasks[task].name,
        ", ".join(f"'{name}'" for name in dict.fromkeys(names)),
    )
    return query, None


def find_video(dataset: PreparedDataset, video_id: str) -> int:
    """Return the number of a video in a data set; an unknown one is refused (ConfigError)."""
    wanted = (video_id, nfc(video_id))
    numbers = (number for number, video in enumerate(dataset.videos) if video.video_id in wanted)
    index = next(numbers, None)
    if index is None:
        near = similar_names(video_id, [video.video_id for video in dataset.videos])
        listed = f"Similar ids: {', '.join(map(repr, near))}." if near else "No id is similar."
        raise ConfigError(
            f"no video '{video_id}' in {dataset.folder}. {listed} "
            "videos.jsonl of the data set lists all.",
            setting="video",
        )
    return index


def observation_of_step(
    dataset: PreparedDataset, video_id: str, step: int, moment: Literal["start", "end"]
) -> NDArray[np.float32]:
    """Return the observation [E] at the start or the end of a step, counted from 1, of a video.

    Args:
        dataset: Data set of the video.
        video_id: Its id.
        step: Number of the step, counted from 1.
        moment: Its start or its end.

    Raises:
        ConfigError: No such video, or no such step in it.
    """
    index = find_video(dataset, video_id)
    count = len(dataset.videos[index].steps)
    if type(step) is not int or not 1 <= step <= count:
        raise ConfigError(
            f"video '{video_id}', step {step!r}: expected 1 to {count}, the number of a step.",
            setting="from_step",
        )
    row: NDArray[np.float32] = getattr(dataset, moment)[int(dataset.first_row[index]) + step - 1]
    return row.astype(np.float32)


def query_from_files(
    initial: Path | str | None, goal: Path | str | None, run: OpenedRun
) -> Queries:
    """Return the query of .npy files, each one observation [E].

    Args:
        initial: File of the observation before the first step; None if it is not known.
        goal: File of the observation after the last step; None if it is not known.
        run: The run, whose width they have.

    Raises:
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
        RunError: Another width than that of the run.
    """
    size, paths = (
        run.planner.observation_dim,
        [path for path in (initial, goal) if path is not None],
    )
    rows = [load_observation(path) for path in paths]
    for path, row in zip(paths, rows, strict=True):
        check_width(run, len(row), f"{path} has")
    return query_of_ends(np.reshape(rows, (-1, size)), initial, goal, size=size)


def load_observation(path: Path | str) -> NDArray[np.float32]:
    """Return the observation [E] of a .npy file (DataError if it holds another thing)."""
    path = Path(path)
    array = load_npy(path)
    array = array[0] if array.ndim == 2 and len(array) == 1 else array
    if array.ndim != 1:
        raise DataError(f"{path}: has shape {list(array.shape)}; expected one observation [E].")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused
            array = array.astype(np.float32)
    row: NDArray[np.float32] = check_array(array[None], shape=(1, None), place=str(path))[0]
    return row
