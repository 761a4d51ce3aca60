"""Queries from what users have: a video of a data set, features, two files, a video, pictures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cefito.data.text import nfc
from cefito.errors import ConfigError, DataError
from cefito.files import check_array, load_npy
from cefito.inference.observations import check_width, query_from_features
from cefito.inference.observer import Recipe
from cefito.planners.base import Queries
from cefito.progress import Progress, silent
from cefito.runs.matching import DatasetMatch, match_dataset
from cefito.runs.run import Run

if TYPE_CHECKING:
    import torch

__all__ = [
    "query_from_features",
    "query_from_files",
    "query_from_pictures",
    "query_from_video",
    "query_from_video_file",
    "query_of_window",
]


def query_from_video(
    run: Run, video_id: str, from_step: int = 0, dataset: Path | str | None = None
) -> tuple[Queries, NDArray[np.int64] | None]:
    """The query of a window of a video, and its annotated actions [T] in the run's ids.

    They are None, and a warning says so, where the run does not know all of them.

    Args:
        run: The run; its horizon is the length of the window.
        video_id: A video of its data set.
        from_step: Number of the window's first step, counted from 0.
        dataset: Any data set of the same kind of observations, by default that of the run.

    Raises:
        ConfigError: No such video, or it has too few steps behind `from_step`.
        RunError: The data set is gone, or the run cannot be used on it, as `match_dataset` says.
    """
    return query_of_window(match_dataset(run, run.dataset(dataset)), video_id, from_step)


def query_of_window(
    match: DatasetMatch, video_id: str, from_step: int = 0
) -> tuple[Queries, NDArray[np.int64] | None]:
    """As `query_from_video`, of a data set that was opened and compared with the run before.

    Raises:
        ConfigError: No such video, or it has too few steps behind `from_step`.
    """
    opened, wanted = match.dataset, (video_id, nfc(video_id))
    numbers = (number for number, video in enumerate(opened.videos) if video.video_id in wanted)
    index = next(numbers, None)
    if index is None:
        raise ConfigError(
            f"no video '{video_id}' in {opened.folder}. Its videos.jsonl lists those there are.",
            setting="video",
        )
    horizon, steps = match.run.horizon, opened.videos[index].steps
    last = len(steps) - horizon
    if not 0 <= from_step <= last:
        remedy = (
            f"The last possible start is {last}."
            if last >= 0
            else f"It is too short for a horizon of {horizon}."
        )
        raise ConfigError(
            f"video '{video_id}' has {len(steps)} steps; {horizon} steps from step {from_step} "
            f"(counted from 0) do not fit. {remedy}",
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
        "video '%s': the run does not know all that is done there (task '%s', %s), and cannot plan "
        "it",
        video_id,
        opened.taxonomy.tasks[opened.videos[index].task].name,
        ", ".join(f"'{name}'" for name in dict.fromkeys(names)),
    )
    return query, None


def query_from_files(initial: Path | str, goal: Path | str, run: Run | None = None) -> Queries:
    """The query of two .npy files, each one observation [E].

    Args:
        initial: File of the observation before the first step.
        goal: File of the observation after the last step.
        run: The run that is to plan; a width that it cannot take is then refused with what to do.

    Raises:
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
        RunError: An observation is of another width than those that the run joined of rows.
    """
    initial = Path(initial)
    goal = Path(goal)
    first, second = _observation(initial), _observation(goal)
    if run is not None:
        for path, array in ((initial, first), (goal, second)):
            check_width(run, array.shape[1], f"{path} has")
    if first.shape != second.shape:
        raise DataError(
            f"{initial} has {first.shape[1]} features, {goal} {second.shape[1]}; expected equally "
            "many."
        )
    return Queries(initial=first, goal=second)


def _observation(path: Path) -> NDArray[np.float32]:
    """The observation of a file, [1, E]."""
    array = load_npy(path)
    if array.ndim == 2 and len(array) == 1:
        array = array[0]
    if array.ndim != 1:
        raise DataError(f"{path}: has shape {list(array.shape)}; expected one observation [E].")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
            array = array.astype(np.float32)
    return check_array(array[None], shape=(1, None), place=str(path))


def query_from_video_file(
    run: Run,
    video: Path | str,
    *,
    start: float,
    end: float,
    encoder: str | None = None,
    weights: Path | str | None = None,
    device: torch.device | None = None,
    progress: Progress = silent,
) -> Queries:
    """The query of two moments of a video file, observed as the run's data set was.

    Args:
        run: The run; what its features were made with decides encoder, layer, sampling and seconds.
        video: The video file.
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        encoder: Name of the encoder, as `cefito.encoders.video.open_encoder` takes it; by default
            the one that the run's features were made with.
        weights: File of the weights of the encoder s3d.
        device: Where the encoder runs; the CPU by default.
        progress: Shows the encoding.

    Raises:
        ConfigError: No encoder known, another one than the run's, or times that the video lacks.
        DataError: The video cannot be read.
        RunError: The encoder's weights are missing or do not fit.
    """
    observer = Recipe.of(run).open(encoder, weights=weights, device=device)
    return observer.of_video(video, start, end, progress=progress)


def query_from_pictures(
    run: Run,
    initial: Path | str,
    goal: Path | str,
    *,
    encoder: str | None = None,
    weights: Path | str | None = None,
    device: torch.device | None = None,
) -> Queries:
    """The query of two pictures, encoded as the run's data set was.

    Args:
        run: The run; what its features were made with decides encoder and layer.
        initial: Picture of the scene before the first step.
        goal: Picture of the scene after the last step.
        encoder: Name of the encoder, as `cefito.encoders.video.open_encoder` takes it; by default
            the one that the run's features were made with.
        weights: File of the weights of the encoder s3d, which cannot encode pictures.
        device: Where the encoder runs; the CPU by default.

    Raises:
        ConfigError: No encoder known, another one than the run's, or one that does not see
            pictures.
        DataError: A picture cannot be read.
    """
    observer = Recipe.of(run).open(encoder, weights=weights, device=device)
    return observer.of_pictures(initial, goal)
