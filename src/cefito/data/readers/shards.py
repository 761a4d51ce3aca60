"""Observations of many videos, computed in parallel and kept on disk in groups (shards).

A preparation that was stopped continues from these. A shard is named by a digest of settings,
steps, and names, sizes and times of its feature files, so changed inputs are computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cefito.arrays import Border
from cefito.data.annotations import Video
from cefito.data.readers.archives import FeatureArray, FeatureError, load_features
from cefito.data.readers.observing import Beyond, is_beyond, is_rounding, kept_steps, observe
from cefito.errors import DataError
from cefito.files import load_tensors, write_tensors
from cefito.progress import Progress

SHARD_VIDEOS = 32
_FORMAT = 4
_PAIRS = "kept", "shape"  # tuples, which JSON makes lists


@dataclass(frozen=True)
class Recipe:
    """Settings of the observations: policy for late steps, seconds (odd), stored type, rate."""

    beyond: Beyond
    seconds: int
    precision: str
    rate: float = 1.0  # rows of features a second

    @property
    def border(self) -> Border:
        """Row repeated beyond a border: the reference loader's if steps are rewritten as by it."""
        return "last" if self.beyond == "rewrite" else "nearest"


@dataclass(frozen=True)
class Job:
    """A video and its feature file."""

    video: Video
    path: Path


@dataclass(frozen=True)
class Outcome:
    """Result for one video; `reason` and `detail` say why it cannot be used, if it cannot."""

    shard: Path  # file of its observations
    key: str  # their name in it
    width: int = 0  # numbers in one observation
    shape: tuple[int, int] = (0, 0)  # of its features
    kept: tuple[int, ...] = ()  # index of the annotated step at each place
    beyond: int = 0  # steps beyond the features
    clamped: int = 0  # steps that end after the features by no more than rounding, and are kept
    reason: str = ""
    detail: str = ""


def make_shards(
    jobs: Sequence[Job], work: Path, *, recipe: Recipe, workers: int, progress: Progress
) -> list[Outcome]:
    """One outcome a job, in their order; observations in the folder `work` are not made again."""
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
    """Start and end observations of each video, [S, E] each, with one shard in memory at a time."""
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
                Outcome(**(entry | {"shard": path} | {name: tuple(entry[name]) for name in _PAIRS}))
                for entry in json.loads(metadata["outcomes"])
            ]
        except DataError:  # damaged: compute it again
            path.unlink()
    outcomes: list[Outcome] = []
    tensors: dict[str, NDArray[Any]] = {}
    for number, job in enumerate(jobs):
        key, shape = str(number), (0, 0)
        try:
            features = load_features(job.path, recipe.rate)
            shape = (len(features.values), features.width)
            outcome, pair = _observe(job, features, path, key, recipe)
        except FeatureError as problem:
            outcome = Outcome(path, key, reason=problem.reason, detail=str(problem), shape=shape)
        else:
            tensors |= {f"{key}/start": pair[0], f"{key}/end": pair[1]}
        outcomes.append(outcome)
    listed = json.dumps([asdict(outcome) | {"shard": ""} for outcome in outcomes])
    write_tensors(path, tensors, {"outcomes": listed})
    return outcomes


def _observe(
    job: Job, features: FeatureArray, shard: Path, key: str, recipe: Recipe
) -> tuple[Outcome, NDArray[Any]]:
    steps = job.video.steps
    outside = [place for place, step in enumerate(steps) if is_beyond(step, features.rows)]
    clamped = 0
    if outside and recipe.beyond != "rewrite" and is_rounding(steps, features.rows):
        clamped, outside = len(outside), []
    if outside and recipe.beyond == "error":
        late = f"step {outside[0] + 1} (counted from 1) of video '{job.video.video_id}' ends later"
        problem = f"{job.path}: the features end at {features.rows} s, and {late}"
        raise DataError(f"{problem}. Leave such steps out, or rewrite them.", setting="beyond")
    kept = list(range(len(steps))) if clamped else kept_steps(steps, features.rows, recipe.beyond)
    if not kept:
        late = f"the features end at {features.rows} s, and all steps end later"
        raise FeatureError("all steps beyond", f"{job.path}: {late}.")
    times = [[steps[place].start for place in kept], [steps[place].end for place in kept]]
    pair = observe(
        features, times, seconds=recipe.seconds, precision=recipe.precision, border=recipe.border
    )
    shape = (len(features.values), features.width)
    return Outcome(shard, key, pair.shape[2], shape, tuple(kept), len(outside), clamped), pair


def _digest(jobs: Sequence[Job], recipe: Recipe) -> str:
    value: list[Any] = [_FORMAT, asdict(recipe)]
    for job in jobs:
        status = job.path.stat()
        times = [[step.start, step.end] for step in job.video.steps]
        value.append([job.video.video_id, times, str(job.path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
