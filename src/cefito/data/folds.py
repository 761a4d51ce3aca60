"""Data sets made of another: as one fold over its videos sees it, and with short videos padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cefito.data.prepared import PreparedDataset, video_folder_entry, write_dataset
from cefito.errors import ConfigError, DataError
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


def pad_dataset(dataset: PreparedDataset, target: Path, *, horizon: int) -> PreparedDataset:
    """Write a data set in which every video with steps has at least `horizon` ≥ 1 of them.

    As in PDPP, KEPP and MTID, short videos begin with copies of their first step. The unified
    protocol drops these videos, so success rates on both are not comparable.
    """
    if horizon < 1:
        raise DataError(f"horizon {horizon}: expected a positive number of actions.")
    videos, rows = [], []
    for video, first in zip(dataset.videos, dataset.first_row.tolist(), strict=True):
        missing = max(0, horizon - len(video.steps)) if video.steps else 0
        steps = (*video.steps[:1] * missing, *video.steps)
        videos.append(replace(video, steps=steps, predicted={} if missing else video.predicted))
        rows += [first] * missing + list(range(first, first + len(video.steps)))
    index = np.array(rows, dtype=np.int64)
    return write_dataset(
        target,
        name=f"{dataset.name}-padded{horizon}",
        annotations=replace(dataset.annotations, videos=tuple(videos)),
        start=dataset.start[index],
        end=dataset.end[index],
        action_text=dataset.action_text,
        provenance={
            "padded_from": dataset.name,
            "fingerprint": dataset.fingerprint,
            "horizon": horizon,
            **{key: dataset.provenance[key] for key in ("observed",) if key in dataset.provenance},
            **video_folder_entry(dataset.video_folder, target),
        },
    )
