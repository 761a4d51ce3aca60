"""What a data set holds: its tasks, actions and videos row by row, and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cefito.arrays import load_npy, load_npz
from cefito.data.annotations import SPLITS, Annotations, Taxonomy, Video, read_annotations
from cefito.data.prepared import open_dataset
from cefito.data.readers.custom import ACTION_TEXT_FILE, FEATURES_FILE
from cefito.data.windows import count_windows, split_videos

Rows = list[dict[str, Any]]


def annotations_of(folder: Path) -> Annotations:
    """Annotations of a prepared data set, or of a folder that holds annotations only."""
    if (folder / "dataset.json").exists() or not (folder / "taxonomy.json").exists():
        return open_dataset(folder).annotations
    return read_annotations(folder)


def list_tasks(
    taxonomy: Taxonomy, annotations: Annotations | None = None, *, task: int | None = None
) -> Rows:
    """Tasks by id, or one: id, name, numbers of actions and videos (None without annotations)."""
    videos = Counter(video.task for video in annotations.videos) if annotations else None
    return [
        {
            "id": entry.id,
            "name": entry.name,
            "actions": len(entry.actions),
            "videos": None if videos is None else videos[entry.id],
        }
        for entry in taxonomy.tasks
        if task in (None, entry.id)
    ]


def list_actions(
    taxonomy: Taxonomy, annotations: Annotations | None = None, *, task: int | None = None
) -> Rows:
    """Actions by id, of all tasks or one: id, name, names of their tasks, number of steps."""
    steps = None
    if annotations is not None:
        videos = [video for video in annotations.videos if task in (None, video.task)]
        steps = Counter(step.action for video in videos for step in video.steps)
    owners: dict[int, list[str]] = {entry.id: [] for entry in taxonomy.actions}
    for owner in taxonomy.tasks:
        for action in owner.actions:
            owners[action].append(owner.name)
    return [
        {
            "id": action,
            "name": taxonomy.actions[action].name,
            "tasks": owners[action],
            "steps": None if steps is None else steps[action],
        }
        for action in (owners if task is None else taxonomy.tasks[task].actions)
    ]


def list_videos(annotations: Annotations, *, task: int | None = None) -> Rows:
    """Videos, of all tasks or one: id, split, task's name, steps' names, in protocol or not."""
    taxonomy = annotations.taxonomy
    return [
        {
            "id": video.video_id,
            "split": video.split,
            "task": taxonomy.tasks[video.task].name,
            "steps": taxonomy.names([step.action for step in video.steps]),
            "in_protocol": video.in_protocol,
        }
        for video in annotations.videos
        if task in (None, video.task)
    ]


HORIZONS = range(1, 7)


def describe(
    path: Path, *, shared_actions: bool = False, horizons: Iterable[int] = HORIZONS
) -> dict[str, Any]:
    """Describe a prepared data set, or a folder that holds annotations only, for JSON.

    By horizon: "windows" of each annotated split; "held_out", the windows of train and val after
    `split_videos` (None if the annotations have val); "candidates", |A|^T over the test windows.
    """
    path = Path(path)
    if (path / "dataset.json").exists() or not (path / "taxonomy.json").exists():
        dataset = open_dataset(path)
        text = dataset.action_text
        head = {"name": dataset.name, "kind": "prepared"}
        tail: dict[str, Any] = {
            "observation_dim": dataset.observation_dim,
            "action_text_dim": None if text is None or shared_actions else int(text.shape[1]),
            "provenance": dataset.provenance,
            "fingerprint": dataset.fingerprint,
        }
        annotations = dataset.annotations
    else:
        annotations = read_annotations(path)
        head = {"name": annotations.taxonomy.dataset, "kind": "annotations"}
        shared = annotations.taxonomy.shared if shared_actions else None
        tail = _dimensions(path, "" if shared is None else f"_{len(shared)}")
    if shared_actions:
        annotations = annotations.in_shared_space()
    return {**head, **_counts(annotations, horizons), **tail}


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
        windows[key] = {split: count_windows(each, horizon) for split, each in members.items()}
        held_out[key] = {split: count_windows(each, horizon) for split, each in held.items()}
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
            split: {"all": len(each), "in_protocol": sum(video.in_protocol for video in each)}
            for split, each in members.items()
        },
        "windows": windows,
        "held_out": held_out if held else None,
        "candidates": candidates,
    }


def _dimensions(path: Path, suffix: str) -> dict[str, int | None]:
    """Widths of the features beside annotations, which are checked when they are prepared."""
    features, text = path / FEATURES_FILE, path / ACTION_TEXT_FILE
    text = text.with_stem(text.stem + suffix)
    rows = load_npz(features, ("start",))["start"] if features.exists() else None
    texts = load_npy(text) if text.exists() else None
    return {
        "observation_dim": None if rows is None else int(rows.shape[-1]),
        "action_text_dim": None if texts is None else int(texts.shape[-1]),
    }
