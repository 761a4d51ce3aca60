"""Observations of many videos, made in parallel and kept on disk in groups.

A preparation that was killed goes on from these.

A group (a shard) is one safetensors file named by a digest of all that decides its content:
settings, steps, and the names, sizes and times of its feature files. So a shard that is there and
whole is right, and what has changed is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cefito.data.readers.archives import FeatureError, open_features
from cefito.data.readers.observing import Beyond, is_beyond, is_rounding, kept_steps, observe
from cefito.data.videos import Video
from cefito.errors import DataError
from cefito.files import load_tensors, write_tensors
from cefito.progress import Progress

__all__ = ["Job", "Outcome", "Recipe", "make_shards", "shard_tensors"]

SHARD_VIDEOS = 32
_FORMAT = 2


@dataclass(frozen=True)
class Recipe:
    """How observations are made.

    Attributes:
        beyond: What becomes of steps beyond the features.
        seconds: Rows in one observation, odd.
        precision: Type in which they are stored: float16 or float32.
    """

    beyond: Beyond
    seconds: int
    precision: str


@dataclass(frozen=True)
class Job:
    """A video and its feature file."""

    video: Video
    path: Path


@dataclass(frozen=True)
class Outcome:
    """What came of one video.

    Attributes:
        shard: File that holds its observations.
        key: Their name in it.
        width: Numbers in one observation; 0 where there are none.
        kept: Which step of the video stands at each place.
        beyond: Steps beyond the features.
        clamped: Steps that end behind the features by no more than rounding, and are kept.
        reason: Why the video cannot be used, in short; empty where it can.
        detail: The same as a sentence.
    """

    shard: Path
    key: str
    width: int = 0
    kept: tuple[int, ...] = ()
    beyond: int = 0
    clamped: int = 0
    reason: str = ""
    detail: str = ""


def make_shards(
    jobs: Sequence[Job], work: Path, *, recipe: Recipe, workers: int, progress: Progress
) -> list[Outcome]:
    """Make the observations of all videos, as far as they are not there yet.

    Args:
        jobs: Videos and their files.
        work: Folder of the shards.
        recipe: How observations are made.
        workers: Threads; reading and inflating lets others run.
        progress: Hears of finished videos.

    Returns:
        What came of each video, in the order of `jobs`.

    Raises:
        DataError: A step lies beyond the features and the recipe calls that an error.
    """
    groups = [jobs[first : first + SHARD_VIDEOS] for first in range(0, len(jobs), SHARD_VIDEOS)]
    found: list[Outcome] = []
    pool = ThreadPoolExecutor(workers)
    try:
        with progress("videos", total=len(jobs)) as advance:
            futures = [pool.submit(_shard, group, work, recipe) for group in groups]
            for group, future in zip(groups, futures, strict=True):
                found += future.result()
                advance(len(group))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def shard_tensors(outcomes: Sequence[Outcome]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Start and end observations of videos, [S, E] each, one shard in memory at a time."""
    path: Path | None = None
    tensors: dict[str, NDArray[Any]] = {}
    for outcome in outcomes:
        if outcome.shard != path:
            path, (tensors, _) = outcome.shard, load_tensors(outcome.shard, "np", "Prepare again.")
        yield tensors[f"{outcome.key}/start"], tensors[f"{outcome.key}/end"]


def _shard(jobs: Sequence[Job], work: Path, recipe: Recipe) -> list[Outcome]:
    path = work / f"{_digest(jobs, recipe)}.safetensors"
    if path.exists():
        try:
            _, metadata = load_tensors(path, "np", "")
            return [
                Outcome(**(entry | {"shard": path, "kept": tuple(entry["kept"])}))
                for entry in json.loads(metadata["outcomes"])
            ]
        except (DataError, KeyError, TypeError, ValueError):
            path.unlink()
    outcomes: list[Outcome] = []
    tensors: dict[str, NDArray[Any]] = {}
    for number, job in enumerate(jobs):
        key = str(number)
        try:
            outcome, pair = _observe(job, Outcome(shard=path, key=key), recipe)
        except FeatureError as problem:
            outcomes.append(
                Outcome(shard=path, key=key, reason=problem.reason, detail=str(problem))
            )
            continue
        outcomes.append(outcome)
        tensors |= {
            f"{key}/{name}": array for name, array in zip(("start", "end"), pair, strict=True)
        }
    listed = json.dumps([asdict(outcome) | {"shard": ""} for outcome in outcomes])
    write_tensors(path, tensors, {"outcomes": listed})
    return outcomes


def _observe(job: Job, blank: Outcome, recipe: Recipe) -> tuple[Outcome, NDArray[Any]]:
    steps = job.video.steps
    with open_features(job.path) as features:
        outside = [place for place, step in enumerate(steps) if is_beyond(step, features.rows)]
        clamped = 0
        if outside and recipe.beyond != "rewrite" and is_rounding(steps, features.rows):
            clamped, outside = len(outside), []
        if outside and recipe.beyond == "error":
            step = steps[outside[0]]
            raise DataError(
                f"{job.path}: step {outside[0]} (counted from 0) of video '{job.video.video_id}' "
                f"ends at {step.end:g} s, but there are features of {features.rows} s only. Leave "
                "such steps out (drop), or take the published loader's way (rewrite).",
                setting="beyond",
            )
        kept = (
            list(range(len(steps))) if clamped else kept_steps(steps, features.rows, recipe.beyond)
        )
        if not kept:
            raise FeatureError(
                "all steps beyond",
                f"{job.path}: has features of {features.rows} s, and every step of video "
                f"'{job.video.video_id}' ends later.",
            )
        last = features.rows - 1  # reached by clamped times only
        pair = observe(
            features,
            [
                [min(steps[place].start, last) for place in kept],
                [min(steps[place].end, last) for place in kept],
            ],
            seconds=recipe.seconds,
            precision=recipe.precision,
        )
    outcome = replace(
        blank, width=pair.shape[2], kept=tuple(kept), beyond=len(outside), clamped=clamped
    )
    return outcome, pair


def _digest(jobs: Sequence[Job], recipe: Recipe) -> str:
    value = [_FORMAT, asdict(recipe)]
    for job in jobs:
        status = job.path.stat()
        value.append(
            [
                job.video.video_id,
                [[step.start, step.end] for step in job.video.steps],
                str(job.path),
                status.st_size,
                status.st_mtime_ns,
            ]
        )
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
