"""Annotated videos, read from and written to `videos.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cefito.data.taxonomy import Task, Taxonomy, is_id
from cefito.data.text import nfc, parsing, read_text
from cefito.errors import DataError
from cefito.files import write_text

__all__ = [
    "SPLITS",
    "Annotations",
    "Step",
    "Video",
    "read_annotations",
    "read_videos",
    "write_videos",
]

SPLITS = ("train", "val", "test")
_SHAPE = 'Expected {"video_id", "split", "task_id", "steps": [[start_s, end_s, action_id], …]}.'


@dataclass(frozen=True)
class Step:
    """One annotated step: start and end in seconds, and the action's id."""

    start: float
    end: float
    action: int


@dataclass(frozen=True)
class Video:
    """One annotated video."""

    video_id: str
    split: str  # "train", "val" or "test"
    task: int
    steps: tuple[Step, ...]  # in annotation order, not always the order of their start times
    in_protocol: bool = True  # False: gives no windows (CrossTask's videos without a feature file)

    def mapped(self, actions: Sequence[int] | Mapping[int, int], task: int | None = None) -> Video:
        """The video with other ids of actions, by old id, and another task, if given."""
        steps = tuple(replace(step, action=actions[step.action]) for step in self.steps)
        return replace(self, task=self.task if task is None else task, steps=steps)


@dataclass(frozen=True)
class Annotations:
    """A taxonomy and the videos annotated with it; no observations."""

    taxonomy: Taxonomy
    videos: tuple[Video, ...]

    def __repr__(self) -> str:
        name = self.taxonomy.dataset
        return f"Annotations({name!r}, {len(self.videos)} videos, {self.step_count} steps)"

    @property
    def step_count(self) -> int:
        """Number of annotated steps over all videos, in protocol or not."""
        return sum(len(video.steps) for video in self.videos)

    def in_shared_space(self) -> Annotations:
        """The same videos in the taxonomy's shared vocabulary (CrossTask: 105 instead of 133)."""
        taxonomy = self.taxonomy.in_shared_space()
        mapped = self.taxonomy.to_shared or ()
        videos = [video.mapped(mapped) for video in self.videos]
        return Annotations(taxonomy=taxonomy, videos=tuple(videos))


def read_annotations(folder: Path | str) -> Annotations:
    """Read `taxonomy.json` and `videos.jsonl` of a folder.

    Raises:
        DataError: Something is missing, malformed or inconsistent; the message names file and line.
    """
    folder = Path(folder)
    taxonomy = Taxonomy.read(folder / "taxonomy.json")
    return Annotations(taxonomy, read_videos(folder / "videos.jsonl", taxonomy))


def read_videos(path: Path, taxonomy: Taxonomy) -> tuple[Video, ...]:
    """Read a `videos.jsonl`, one video a line.

    Each line is {"video_id", "split", "task_id", "steps": [[start_s, end_s, action_id], …],
    optional "in_protocol"}.
    """
    expected = "Expected UTF-8 text, one JSON object a line, one line a video."
    lines = read_text(path, expected).split("\n")  # splitlines() also splits at U+2028
    videos: list[Video] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        video = _video(line, taxonomy, place=f"{path}, line {number}")
        if video.video_id in seen:
            repeat = f"repeats the video '{video.video_id}' of line {seen[video.video_id]}"
            raise DataError(f"{path}, line {number}: {repeat}. Remove or rename one of them.")
        seen[video.video_id] = number
        videos.append(video)
    if not videos:
        raise DataError(f"{path}: holds no videos. {expected}")
    return tuple(videos)


def write_videos(path: Path, videos: Iterable[Video]) -> None:
    """Write a `videos.jsonl`; `read_videos` reads it back."""
    lines = []
    for video in videos:
        value: dict[str, Any] = {
            "video_id": video.video_id,
            "split": video.split,
            "task_id": video.task,
            "steps": [[step.start, step.end, step.action] for step in video.steps],
        }
        if not video.in_protocol:
            value["in_protocol"] = False
        lines.append(json.dumps(value, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def _video(line: str, taxonomy: Taxonomy, place: str) -> Video:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else problem
        message = f"{place}: not valid JSON ({reason}). Correct or remove the line."
        raise DataError(message) from problem
    with parsing(place, "a video", _SHAPE):
        video_id, split, task = value["video_id"], value["split"], value["task_id"]
        steps = tuple(
            Step(start=_seconds(start), end=_seconds(end), action=action)
            for start, end, action in value["steps"]
        )
        in_protocol = value.get("in_protocol", True)
    tasks = len(taxonomy.tasks)
    for name, found, valid, expected in (
        ("video_id", video_id, isinstance(video_id, str) and video_id, "a name"),
        ("split", split, split in SPLITS, f"one of {', '.join(SPLITS)}"),
        ("in_protocol", in_protocol, isinstance(in_protocol, bool), "true or false"),
        ("task_id", task, is_id(task, tasks), f"an id of the taxonomy, 0 to {tasks - 1}"),
    ):
        if not valid:
            raise DataError(f"{place}: {name} is {found!r}; expected {expected}. Correct the line.")
    for number, step in enumerate(steps):
        wrong = _problem(step, taxonomy.tasks[task], len(taxonomy.actions))
        if wrong:
            raise DataError(f"{place}: step {number} (counted from 0) {wrong}.")
    return Video(nfc(video_id), split, task, steps, in_protocol)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number of seconds")
    return float(value)


def _problem(step: Step, task: Task, actions: int) -> str:
    """What is wrong with a step, and the remedy; "" if nothing is."""
    if not is_id(step.action, actions):
        return (
            f"has the unknown action id {step.action!r}; the taxonomy has 0 to {actions - 1}. "
            "Add the action there or correct the id"
        )
    if step.action not in task.actions:
        return (
            f"has action {step.action}, which the taxonomy does not list for task {task.id} "
            f"('{task.name}'). Add it there or correct the id"
        )
    if not (math.isfinite(step.end) and math.isfinite(step.start) and step.start <= step.end):
        times = f"runs from {step.start} s to {step.end} s"
        return f"{times}; expected seconds with start ≤ end. Correct or remove it"
    return ""
