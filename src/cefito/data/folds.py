"""Folds over the videos of a data set, and the data set as one fold sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.files import value_digest


def known_videos(data: PreparedDataset, *, test: bool = False) -> list[int]:
    """Return the indices of the videos of the protocol; those of the test split only if `test`."""
    return [
        index
        for index, video in enumerate(data.videos)
        if video.in_protocol and (test or video.split != "test")
    ]


def split_folds(
    data: PreparedDataset, videos: Sequence[int], count: int, *, seed: int = 0, least: int = 2
) -> list[list[int]]:
    """Split videos into folds at random, the videos of each task evenly.

    Every video is in one fold; the numbers of videos of a task differ by at most one between folds.

    Args:
        data: The data set.
        videos: Indices of its videos.
        count: Number of folds.
        seed: Seed of the order in which videos are dealt.
        least: Smallest number of folds, for the message.

    Raises:
        ConfigError: A number of folds that is not possible.
    """
    if not 2 <= count <= len(videos):
        zero = "0, or " if least == 0 else ""
        raise ConfigError(
            f"folds {count}: expected {zero}from 2 to the number of videos ({len(videos)}).",
            setting="folds",
        )
    order = np.random.default_rng(seed).permutation(len(videos))
    tasks = np.array([data.videos[video].task for video in videos])
    ranked = order[np.argsort(tasks[order], kind="stable")]
    return [sorted(np.array(videos)[ranked[fold::count]].tolist()) for fold in range(count)]


def fold_view(
    data: PreparedDataset, *, train: Sequence[int], held: Sequence[int], val: Sequence[int] = ()
) -> PreparedDataset:
    """Return a data set of some videos: those held out are its test split, others give no windows.

    Without validation videos a part of the training videos is held out for validation, as of every
    data set (`split_videos`).
    """
    splits = dict.fromkeys(train, "train") | dict.fromkeys(val, "val") | dict.fromkeys(held, "test")
    videos = tuple(
        replace(video, split=splits.get(index, "test"), in_protocol=index in splits)
        for index, video in enumerate(data.videos)
    )
    names = [[data.videos[index].video_id for index in part] for part in (train, val, held)]
    return replace(
        data,
        annotations=replace(data.annotations, videos=videos),
        hashes={**data.hashes, "fold": value_digest(names)},
    )
