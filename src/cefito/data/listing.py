"""Tasks, actions and videos of a data set, one row each, to look up names and ids."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from cefito.data.prepared import open_dataset
from cefito.data.taxonomy import Taxonomy
from cefito.data.videos import Annotations, read_annotations

__all__ = ["annotations_of", "list_actions", "list_tasks", "list_videos"]

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
