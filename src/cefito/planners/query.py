"""Queries from what users have: a video of a data set, features, two files, a video, pictures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.text import nfc
from cefito.errors import ConfigError, DataError
from cefito.files import check_array, load_npy
from cefito.planners.base import Queries
from cefito.planners.observations import check_width, query_from_features
from cefito.planners.run import Run
from cefito.progress import Progress, silent

if TYPE_CHECKING:
    import torch

    from cefito.encoders.video import VideoEncoder

__all__ = [
    "query_from_features",
    "query_from_files",
    "query_from_pictures",
    "query_from_video",
    "query_from_video_file",
]

# Of what features were made with: what an encoder of each kind is opened with again.
_S3D_SETTINGS = ("frames", "rate", "size")
_PICTURE_SETTINGS = ("layer",)


def query_from_video(
    run: Run, video_id: str, from_step: int = 0, dataset: Path | None = None
) -> tuple[Queries, NDArray[np.int64]]:
    """The query of a window of a video, and its annotated actions [T].

    Args:
        run: The run; its horizon is the length of the window.
        video_id: A video of its data set.
        from_step: Number of the window's first step, counted from 0.
        dataset: Where the data set lies, if it has moved.

    Raises:
        ConfigError: No such video, or it has too few steps behind `from_step`.
        RunError: The data set is gone or another one.
    """
    opened = run.dataset(dataset)
    wanted = (video_id, nfc(video_id))
    numbers = (number for number, video in enumerate(opened.videos) if video.video_id in wanted)
    index = next(numbers, None)
    if index is None:
        raise ConfigError(
            f"no video '{video_id}' in {opened.folder}. Its videos.jsonl lists those there are.",
            setting="video",
        )
    horizon, steps = run.horizon, opened.videos[index].steps
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
    return query, np.array(actions, dtype=np.int64)


def query_from_files(initial: Path, goal: Path, run: Run | None = None) -> Queries:
    """The query of two .npy files, each one observation [E].

    Args:
        initial: File of the observation before the first step.
        goal: File of the observation after the last step.
        run: The run that is to plan; a width that it cannot take is then refused with what to do.

    Raises:
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
        RunError: An observation is of another width than those that the run joined of rows.
    """
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
    video: Path,
    *,
    start: float,
    end: float,
    encoder: str | None = None,
    weights: Path | None = None,
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
    from cefito.encoders.video import observations_from_video

    observed = _observed(run)
    made_with = observed.get("features") or {}
    name = _encoder_name(run, encoder, made_with)
    initial, goal = observations_from_video(
        video,
        start,
        end,
        _open(name, made_with, weights, device),
        seconds=observed.get("seconds", 3),
        made_with=made_with or None,
        progress=progress,
    )
    _warn_unknown(name, made_with)
    return Queries(initial=initial[None], goal=goal[None])


def query_from_pictures(
    run: Run,
    initial: Path,
    goal: Path,
    *,
    encoder: str | None = None,
    weights: Path | None = None,
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
    from cefito.encoders.images import observations_from_images
    from cefito.encoders.video import Pictures

    made_with = _observed(run).get("features") or {}
    name = _encoder_name(run, encoder, made_with)
    opened = _open(name, made_with, weights, device)
    if not isinstance(opened, Pictures):
        raise ConfigError(
            f"the encoder {name} sees clips of videos, not pictures. Give a video file and its two "
            "times, or train on features of a model of pictures.",
            setting="encoder",
        )
    first, second = observations_from_images(
        initial,
        goal,
        opened.images,
        made_with=made_with or None,
        size=run.planner.observation_dim,
    )
    _warn_unknown(name, made_with)
    return Queries(initial=first[None], goal=second[None])


def _observed(run: Run) -> Mapping[str, Any]:
    """How the steps of the run's data set were observed; empty where it does not say."""
    return run.info.dataset.observed or {}


def _encoder_name(run: Run, given: str | None, made_with: Mapping[str, Any]) -> str:
    """The encoder that is asked for, otherwise the one of the run's features."""
    if given is not None:
        return given
    learned = str(made_with.get("model", ""))
    if not learned:
        raise ConfigError(
            f"{run.folder}: does not say what the features it learned from were made with. Name "
            "that encoder: s3d, clip, dinov2, or the folder of a model of pictures; or give "
            "features of the video instead.",
            setting="encoder",
        )
    if learned != "s3d" and "/" not in learned:  # it lay in a folder, and not on the hub
        raise ConfigError(
            f"{run.folder}: learned from features of the model '{learned}'. Give its folder as the "
            "encoder.",
            setting="encoder",
        )
    return learned


def _open(
    name: str, made_with: Mapping[str, Any], weights: Path | None, device: torch.device | None
) -> VideoEncoder:
    """The encoder, set as that of the run."""
    from cefito.encoders.video import open_encoder

    settings = _S3D_SETTINGS if name == "s3d" else _PICTURE_SETTINGS
    kept = {key: made_with[key] for key in settings if key in made_with}
    return open_encoder(name, weights=weights, device=device or "cpu", **kept)


def _warn_unknown(name: str, made_with: Mapping[str, Any]) -> None:
    if not made_with:
        logging.getLogger(__name__).warning(
            "the run does not say what its features were made with; plans make sense only if that "
            "was %s",
            name,
        )
