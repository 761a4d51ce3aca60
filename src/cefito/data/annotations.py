"""Annotated videos and their file: steps in time, in the words of a taxonomy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cefito.data.vocabulary import Name, Taxonomy, nfc
from cefito.errors import DataError, explained
from cefito.files import MAX_JSON, read_text, write_text
from cefito.markup import counted, step_times
from cefito.settings import Record, parse_record


def parsing(place: str, kind: str, expected: str) -> AbstractContextManager[None]:
    """Refuse JSON with missing keys or wrong types, read at a place that should hold a kind.

    Args:
        place: Where the JSON comes from.
        kind: What it should hold.
        expected: Its form, for the message.
    """
    kinds = KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError
    return explained(place, f"not {kind}", expected, *kinds)


SPLITS = ("train", "val", "test")
_SHAPE = 'Expected {"video_id", "split", "task_id", "steps": [[start_s, end_s, action_id], …]}.'


@dataclass(frozen=True)
class Step:
    """One annotated step: start and end in seconds, and the action's id."""

    start: float
    end: float
    action: int
    errors: tuple[str, ...] = field(default=(), compare=False)  # kinds of what was done wrongly

    @property
    def misplaced(self) -> bool:
        """Whether it has an error of order."""
        return any("order" in error.casefold() for error in self.errors)


def make_step(start: Any, end: Any, action: int, *, place: str) -> Step:
    """Make a step of times that are checked.

    Args:
        start: Start, as of `step_times`.
        end: End, as of `step_times`.
        action: Id of the action.
        place: Where the step was read; begins messages.
    """
    return Step(*step_times(start, end, place=place), action)


@dataclass(frozen=True)
class Video:
    """One annotated video."""

    video_id: str
    split: str  # "train", "val" or "test"
    task: int
    steps: tuple[Step, ...]  # in annotation order, not always the order of their start times
    in_protocol: bool = True  # False: gives no windows (CrossTask's videos without a feature file)
    missing: tuple[int, ...] = ()  # actions that should have been performed and were not
    # for some T, the task that a classifier of others predicted for each window of T steps, by the
    # window's first step; −1 if unknown
    predicted: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    group: str = ""  # person, day or machine; empty if it is not known

    @property
    def clean(self) -> bool:
        """Whether no error is annotated."""
        return not self.missing and not any(step.errors for step in self.steps)

    def with_steps(self, kept: Sequence[int]) -> Video:
        """The video with the annotated step of each place; predicted tasks go with their windows.

        Windows of other steps than before have none, unless each step still has its place.
        """
        whole = len(kept) == len(self.steps)
        predicted = {
            horizon: tuple(
                row[place if whole else kept[place]]
                if whole or kept[place + horizon - 1] - kept[place] == horizon - 1
                else -1
                for place in range(len(kept) - horizon + 1)
            )
            for horizon, row in self.predicted.items()
        }
        return replace(self, steps=tuple(self.steps[place] for place in kept), predicted=predicted)


@dataclass(frozen=True)
class Annotations:
    """A taxonomy and the videos annotated with it; no observations."""

    taxonomy: Taxonomy
    videos: tuple[Video, ...]

    def __repr__(self) -> str:
        name = self.taxonomy.dataset
        parts = counted(len(self.videos), "video"), counted(self.step_count, "step")
        return f"Annotations({name!r}, {', '.join(parts)})"

    @property
    def step_count(self) -> int:
        """Number of annotated steps over all videos, in protocol or not."""
        return sum(len(video.steps) for video in self.videos)


def read_annotations(folder: Path | str) -> Annotations:
    """Read `taxonomy.json` and `videos.jsonl` of a folder."""
    folder = Path(folder)
    taxonomy = Taxonomy.read(folder / "taxonomy.json")
    return Annotations(taxonomy, read_videos(folder / "videos.jsonl", taxonomy))


def read_videos(path: Path, taxonomy: Taxonomy) -> tuple[Video, ...]:
    """Read a `videos.jsonl`, one video a line.

    Each line is {"video_id", "split", "task_id", "steps": [[start_s, end_s, action_id], …],
    optional "in_protocol", "group": "name", "errors": [[kinds] for each step], "missing": [action
    ids] and "predicted_tasks": {"T": [id or null for each window of T steps]}}.
    """
    expected = "Expected UTF-8 text, one JSON object a line, one line a video."
    videos: dict[str, tuple[Video, str]] = {}  # with the line of each
    for place, line in json_lines(path, expected):
        video, where = _video(line, taxonomy, place), place.rpartition(", ")[2]
        if videos.setdefault(video.video_id, (video, where))[1] != where:
            repeat = f"repeats the video '{video.video_id}' of {videos[video.video_id][1]}"
            raise DataError(f"{place}: {repeat}. Remove or rename one of them.")
    if not videos:
        raise DataError(f"{path}: holds no videos. {expected}")
    return tuple(video for video, _ in videos.values())


def json_lines(path: Path, expected: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line of a file that is not empty."""
    lines = read_text(path, expected).split("\n")  # splitlines() also splits at U+2028
    for number, line in enumerate(lines, 1):
        place = f"{path}, line {number}"
        if len(line) > MAX_JSON:
            raise DataError(f"{place}: has more than {MAX_JSON >> 20} MiB. {expected}")
        if line.strip():
            yield place, line


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
        if video.group:
            value["group"] = video.group
        if any(step.errors for step in video.steps):
            value["errors"] = [list(step.errors) for step in video.steps]
        if video.missing:
            value["missing"] = list(video.missing)
        if video.predicted:
            value["predicted_tasks"] = {
                horizon: [None if task < 0 else task for task in row]
                for horizon, row in video.predicted.items()
            }
        lines.append(json.dumps(value, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


class _VideoEntry(Record, extra="ignore", strict=True):
    """A line of `videos.jsonl`."""

    video_id: Annotated[str, AfterValidator(nfc), Field(min_length=1)]
    split: Literal["train", "val", "test"]
    task_id: int
    steps: list[tuple[float, float, int]]
    in_protocol: bool = True
    group: Annotated[str, AfterValidator(nfc)] = ""
    errors: list[tuple[Name, ...]] | None = None
    missing: tuple[int, ...] = ()
    predicted_tasks: dict[int, list[int | None]] = Field(default_factory=dict)


def _video(line: str, taxonomy: Taxonomy, place: str) -> Video:
    entry = parse_record(_VideoEntry, line, f"{place}: not a video", _SHAPE, DataError)
    fault = ""
    if not 0 <= entry.task_id < len(taxonomy.tasks):
        fault = f"task_id is {entry.task_id}; expected 0 to {len(taxonomy.tasks) - 1}"
    else:
        task = taxonomy.tasks[entry.task_id]
        for number, (start, end, action) in enumerate(entry.steps, 1):
            if action not in task.actions:
                fault = f"action {action}, which the taxonomy does not list for '{task.name}'"
            elif start > end:
                fault = f"the times {start} s to {end} s; expected start ≤ end"
            if fault:
                fault = f"step {number} (counted from 1) has {fault}"
                break
    predicted = {
        horizon: tuple(-1 if task is None else task for task in row)
        for horizon, row in entry.predicted_tasks.items()
    }
    for horizon, row in predicted.items():
        expected = max(0, len(entry.steps) - horizon + 1)
        if (
            horizon < 1
            or len(row) != expected
            or not all(-1 <= t < len(taxonomy.tasks) for t in row)
        ):
            fault = f"'predicted_tasks' of T = {horizon}; expected {expected} ids of tasks or null"
    errors = [()] * len(entry.steps) if entry.errors is None else entry.errors
    if len(errors) != len(entry.steps):
        fault = f"'errors' of {len(errors)} steps; expected {len(entry.steps)}"
    if not {*entry.missing} <= {*range(len(taxonomy.actions))}:
        fault = f"'missing' {list(entry.missing)}; expected ids of actions"
    if fault:
        raise DataError(f"{place}: {fault}. Correct the line or the taxonomy.")
    steps = tuple(Step(*step, kinds) for step, kinds in zip(entry.steps, errors, strict=True))
    return Video(
        entry.video_id,
        entry.split,
        entry.task_id,
        steps,
        entry.in_protocol,
        entry.missing,
        predicted,
        entry.group,
    )
