"""Queries from a video of a data set, or from two files."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import nfc
from cefito.errors import ConfigError, DataError
from cefito.files import check_array, load_npy
from cefito.inference.observations import check_width
from cefito.planners.base import Queries
from cefito.runs.matching import DatasetMatch, match_dataset
from cefito.runs.run import Run

__all__ = ["query_from_files", "query_from_video", "query_from_window"]


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
