"""Groups of videos (a person, a day, a machine), and splits and folds that keep each together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Video
from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.files import value_digest

By = Literal["video", "group"]
"""What folds keep together."""
FOLDS = 5
"""Number of folds, by default."""
FEW_VIDEOS = 30
"""Number of videos below which all train, and folds judge."""


def group_numbers(videos: Sequence[Video]) -> NDArray[np.int64]:
    """Return the number of each video's group [V]; a video without one is a group of its own."""
    names = [video.group or (video.video_id,) for video in videos]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def are_grouped(groups: NDArray[np.int64]) -> bool:
    """Whether there are several groups [V] that videos share."""
    return 1 < len(np.unique(groups)) < len(groups)


def drawn_groups(videos: Sequence[Video], share: float, seed: int) -> set[int]:
    """Draw whole groups that hold about a share of the videos; return the places of these.

    At least one group is drawn, and a task keeps a video that is not, as far as that is possible.
    Nothing is drawn of a single group, or where no videos share one.

    Args:
        videos: The videos.
        share: Their share that is drawn, from 0 to 1.
        seed: Seed of the draw.
    """
    groups, tasks = group_numbers(videos), np.array([video.task for video in videos], dtype=int)
    if not are_grouped(groups):
        return set()
    counts = np.zeros((groups.max() + 1, tasks.max() + 1))
    np.add.at(counts, (groups, tasks), 1)
    sizes, left, wanted = counts.sum(axis=1), counts.sum(axis=0), share * len(videos)
    order = np.random.default_rng(seed).permutation(len(sizes))
    drawn: list[int] = []
    for group in order.tolist():
        keeps = ((left > counts[group]) | (counts[group] == 0)).all()
        if keeps and abs(wanted - sizes[group]) < wanted:
            drawn.append(group)
            left, wanted = left - counts[group], wanted - sizes[group]
    if not drawn:
        drawn = [order[sizes[order].argmin()]]
    return set(np.flatnonzero(np.isin(groups, drawn)).tolist())


def folds_of(
    videos: Sequence[Video], count: int, seed: int = 0, *, by_task: bool = False
) -> NDArray[np.int64]:
    """Deal videos into folds at random, and return the fold of each [V].

    The videos of a group are in one fold: groups are dealt, the largest first, each into the fold
    of the fewest videos. There are at most as many folds as groups. Those of a single group are
    dealt as if they had none.

    Args:
        videos: The videos.
        count: Number of folds, at most.
        seed: Seed of the order in which they are dealt.
        by_task: Whether the videos of each task are dealt evenly, if none share a group.
    """
    groups = units_of(videos)
    sizes = np.bincount(groups)
    drawn, count = np.random.default_rng(seed).permutation(len(sizes)), min(count, len(sizes))
    if len(sizes) == len(videos):
        if by_task:
            tasks = np.array([video.task for video in videos])
            drawn = np.argsort(drawn[np.argsort(tasks[drawn], kind="stable")])
        return np.asarray(drawn % max(count, 1))
    folds, filled = np.zeros(len(sizes), dtype=np.int64), np.zeros(count)
    for group in drawn[np.argsort(-sizes[drawn], kind="stable")]:
        folds[group] = filled.argmin()
        filled[folds[group]] += sizes[group]
    return folds[groups]


def units_of(videos: Sequence[Video]) -> NDArray[np.int64]:
    """Return the number of each video's group [V], of several, else of the video: what is drawn."""
    groups = group_numbers(videos)
    return groups if are_grouped(groups) else np.arange(len(videos))


def known_videos(data: PreparedDataset, *, test: bool = False) -> list[int]:
    """Return the indices of the videos of the protocol; those of the test split only if `test`."""
    return [
        index
        for index, video in enumerate(data.videos)
        if video.in_protocol and (test or video.split != "test")
    ]


def split_folds(
    data: PreparedDataset,
    videos: Sequence[int],
    count: int | None = None,
    *,
    seed: int = 0,
    least: int = 2,
    by: By | None = None,
) -> list[list[int]]:
    """Split videos into folds at random: whole groups, or the videos of each task evenly.

    Every video is in one fold. Without groups, the numbers of videos of a task differ by at most
    one between folds.

    Args:
        data: The data set.
        videos: Indices of its videos.
        count: Number of folds; by default one for each group if `by` is "group", else `FOLDS`, or
            as many as there are groups.
        seed: Seed of the order in which videos are dealt.
        least: Smallest number of folds, for the message.
        by: What folds keep together; groups by default, if there are any.

    Raises:
        ConfigError: A number of folds that is not possible, or no groups.
    """
    chosen = [data.videos[video] for video in videos]
    if by == "video":
        chosen = [replace(video, group="") for video in chosen]
    grouped = are_grouped(group_numbers(chosen))
    if by == "group" and not grouped:
        problem = "its videos are not of several groups. Name their groups"
        raise ConfigError(f"{data.folder}: {problem}.", setting="by")
    most = len({*units_of(chosen).tolist()})
    if count is None:
        count = most if by == "group" else min(FOLDS, most)
    if not 2 <= count <= most:
        zero, what = "0, or " if least == 0 else "", "groups" if grouped else "videos"
        raise ConfigError(
            f"folds {count}: expected {zero}from 2 to the number of {what} ({most}).",
            setting="folds",
        )
    folds = folds_of(chosen, count, seed, by_task=True)
    return [sorted(np.array(videos)[folds == fold].tolist()) for fold in range(count)]


def fold_view(
    data: PreparedDataset, *, train: Sequence[int], held: Sequence[int], val: Sequence[int] = ()
) -> PreparedDataset:
    """Return a data set of some videos: those held out are its test split, others give no windows.

    Without validation videos a part of the training videos is held out for validation, as of every
    data set (`split_videos`).

    Args:
        data: Opened data set.
        train: Indices of training videos.
        held: Indices of videos held out.
        val: Indices of validation videos.
    """
    splits = dict.fromkeys(train, "train") | dict.fromkeys(val, "val") | dict.fromkeys(held, "test")
    videos = tuple(
        replace(video, split=splits.get(index, "test"), in_protocol=index in splits)
        for index, video in enumerate(data.videos)
    )
    names = [[data.videos[index].video_id for index in members] for members in (train, val, held)]
    return replace(
        data,
        annotations=replace(data.annotations, videos=videos),
        hashes={**data.hashes, "fold": value_digest(names)},
    )
