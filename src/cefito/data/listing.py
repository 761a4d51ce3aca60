"""Tasks, actions and videos of a data set, one row each, to look names and ids up in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from cefito.data.prepared import open_dataset
from cefito.data.taxonomy import Taxonomy
from cefito.data.videos import Annotations, read_annotations
from cefito.settings import Record

__all__ = [
    "ActionRow",
    "Listed",
    "TaskRow",
    "VideoRow",
    "annotations_of",
    "list_actions",
    "list_tasks",
    "list_videos",
]

Listed = Literal["tasks", "actions", "videos"]


class TaskRow(Record):
    """One task.

    Attributes:
        id: Its id.
        name: Its name.
        actions: How many actions it may take.
        videos: How many videos show it; None where the videos are not known.
    """

    id: int
    name: str
    actions: int
    videos: int | None


class ActionRow(Record):
    """One action.

    Attributes:
        id: Its id.
        name: Its name.
        tasks: Names of the tasks that may take it.
        steps: How many annotated steps it is; None where the videos are not known.
    """

    id: int
    name: str
    tasks: tuple[str, ...]
    steps: int | None


class VideoRow(Record):
    """One video.

    Attributes:
        id: Its id.
        split: "train", "val" or "test".
        task: Name of its task.
        steps: Names of its actions, in order.
        in_protocol: Whether it gives windows.
    """

    id: str
    split: str
    task: str
    steps: tuple[str, ...]
    in_protocol: bool


def annotations_of(folder: Path) -> Annotations:
    """Annotations of a prepared data set, or of a folder that holds annotations only.

    Raises:
        DataError: The folder is neither, or something in it is malformed.
    """
    if (folder / "dataset.json").exists() or not (folder / "taxonomy.json").exists():
        return open_dataset(folder).annotations
    return read_annotations(folder)


def list_tasks(
    taxonomy: Taxonomy, annotations: Annotations | None = None, *, task: int | None = None
) -> list[TaskRow]:
    """The tasks, by id.

    Args:
        taxonomy: The tasks.
        annotations: The videos, where they are known.
        task: Id of the only one wanted.
    """
    videos = Counter(video.task for video in annotations.videos) if annotations else None
    return [
        TaskRow(
            id=entry.id,
            name=entry.name,
            actions=len(entry.actions),
            videos=None if videos is None else videos[entry.id],
        )
        for entry in taxonomy.tasks
        if task in (None, entry.id)
    ]


def list_actions(
    taxonomy: Taxonomy, annotations: Annotations | None = None, *, task: int | None = None
) -> list[ActionRow]:
    """The actions, by id.

    Args:
        taxonomy: The actions.
        annotations: The videos, where they are known.
        task: Id of the task whose actions are wanted; steps are then counted in its videos.
    """
    steps = (
        Counter(
            step.action
            for video in annotations.videos
            if task in (None, video.task)
            for step in video.steps
        )
        if annotations
        else None
    )
    owners: dict[int, list[str]] = {entry.id: [] for entry in taxonomy.actions}
    for owner in taxonomy.tasks:
        for action in owner.actions:
            owners[action].append(owner.name)
    wanted = range(len(taxonomy.actions)) if task is None else taxonomy.tasks[task].actions
    return [
        ActionRow(
            id=action,
            name=taxonomy.actions[action].name,
            tasks=tuple(owners[action]),
            steps=None if steps is None else steps[action],
        )
        for action in wanted
    ]


def list_videos(annotations: Annotations, *, task: int | None = None) -> list[VideoRow]:
    """The videos, in their order.

    Args:
        annotations: The videos.
        task: Id of the task whose videos are wanted.
    """
    taxonomy = annotations.taxonomy
    return [
        VideoRow(
            id=video.video_id,
            split=video.split,
            task=taxonomy.tasks[video.task].name,
            steps=tuple(taxonomy.names([step.action for step in video.steps])),
            in_protocol=video.in_protocol,
        )
        for video in annotations.videos
        if task in (None, video.task)
    ]
