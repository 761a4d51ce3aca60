"""What a data set holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cefito.data.annotations import SPLITS, Annotations, Video, read_annotations
from cefito.data.prepared import open_dataset
from cefito.data.source import ERRORS_FILE, read_common
from cefito.data.windows import count_windows, split_videos

HORIZONS = range(1, 7)


def describe(path: Path, *, horizons: Iterable[int] = HORIZONS) -> dict[str, Any]:
    """Describe a prepared data set, or a folder that holds annotations only, for JSON.

    By horizon: "windows" of each annotated split; "held_out", the windows of train and val after
    `split_videos` (None if the annotations have val); "candidates", |A|^T over the test windows.
    "groups" are numbers of videos by group; None without any.
    """
    if (path / "taxonomy.json").exists() and not (path / "dataset.json").exists():
        of_errors = (path / ERRORS_FILE).exists()
        annotations = read_common(path).annotations if of_errors else read_annotations(path)
        head = {"name": annotations.taxonomy.dataset, "kind": "annotations"}
        return {**head, **_counts(annotations, horizons)}
    dataset = open_dataset(path)
    text = dataset.action_text
    return {
        "name": dataset.name,
        "kind": "prepared",
        **_counts(dataset.annotations, horizons),
        "observation_dim": dataset.observation_dim,
        "action_text_dim": None if text is None else int(text.shape[1]),
        "provenance": dataset.provenance,
        "fingerprint": dataset.fingerprint,
    }


def _counts(annotations: Annotations, horizons: Iterable[int]) -> dict[str, Any]:
    videos = annotations.videos
    members = {split: [video for video in videos if video.split == split] for split in SPLITS}
    members = {split: videos for split, videos in members.items() if videos}
    held: dict[str, list[Video]] = {}
    if not any(video.in_protocol for video in members.get("val", ())):
        parts = split_videos(videos)
        held = {split: [videos[index] for index in parts[split]] for split in ("train", "val")}
    sizes = [len(task.actions) for task in annotations.taxonomy.tasks]
    windows, held_out, candidates = {}, {}, {}
    for horizon in horizons:
        key = str(horizon)
        windows[key] = {split: count_windows(videos, horizon) for split, videos in members.items()}
        held_out[key] = {split: count_windows(videos, horizon) for split, videos in held.items()}
        numbers = [
            sizes[video.task] ** horizon
            for video in members.get("test", ())
            for _ in range(count_windows([video], horizon))
        ]
        if numbers:
            candidates[key] = {"mean": fmean(numbers), "median": float(median(numbers))}
    return {
        "tasks": len(sizes),
        "actions": len(annotations.taxonomy.actions),
        "steps": annotations.step_count,
        "videos": {
            split: {"all": len(videos), "in_protocol": sum(video.in_protocol for video in videos)}
            for split, videos in members.items()
        },
        "groups": dict(Counter(video.group for video in videos if video.group)) or None,
        "windows": windows,
        "held_out": held_out if held else None,
        "candidates": candidates,
        "errors": _errors(videos),
    }


def _errors(videos: Sequence[Video]) -> dict[str, Any] | None:
    """Count what was done wrongly; None if no error is annotated."""
    kinds = Counter(kind for video in videos for step in video.steps for kind in step.errors)
    missing = sum(len(video.missing) for video in videos)
    if not kinds and not missing:
        return None
    return {
        "videos": sum(not video.clean for video in videos),
        "steps": sum(bool(step.errors) for video in videos for step in video.steps),
        "missing": missing,
        "kinds": dict(kinds.most_common()),
    }
