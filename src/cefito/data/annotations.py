"""Annotations: the vocabulary of tasks and actions, and the annotated videos, with their files."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import check_regular
from cefito.errors import DataError
from cefito.files import read_bytes, read_json, write_text

__all__ = [
    "SPLITS",
    "Action",
    "Annotations",
    "Step",
    "Task",
    "Taxonomy",
    "Video",
    "folded",
    "nfc",
    "parsing",
    "read_annotations",
    "read_text",
    "read_videos",
    "write_videos",
]


def read_text(path: Path, remedy: str, encoding: str = "utf-8") -> str:
    """Read a text file; `remedy` ends the message if that fails."""
    check_regular(path, remedy)
    try:
        text = read_bytes(path).decode(encoding)
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path}: cannot be read ({problem}). {remedy}") from problem
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def parsing(place: str, kind: str, expected: str) -> Iterator[None]:
    """Refuse JSON with missing keys or wrong types, read at a place that should hold a kind."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as problem:
        raise DataError(f"{place}: not {kind} ({problem!r}). {expected}") from problem


def nfc(text: str) -> str:
    """Convert to Unicode's normal form C, where "é" is one letter (two in Apple's file names)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """A name without case, punctuation and repeated spaces, to compare names by."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))


_REMEDY = (
    'Expected {"dataset", "tasks": [{"id", "name", "actions": [ids]}], "actions": [{"id", '
    '"name"}]}.'
)


@dataclass(frozen=True)
class Action:
    """One action of the vocabulary; ids run from 0 to K − 1."""

    id: int
    name: str


@dataclass(frozen=True)
class Task:
    """One task and the ids of the actions that it may take, ascending."""

    id: int
    name: str
    actions: tuple[int, ...]


@dataclass(frozen=True)
class Taxonomy:
    """The closed vocabulary of a data set; position = id.

    `shared` is a coarser vocabulary, in which equal actions of different tasks share an id
    (CrossTask's 105).
    """

    dataset: str  # its name
    tasks: tuple[Task, ...]
    actions: tuple[Action, ...]
    shared: tuple[Action, ...] | None = None
    to_shared: tuple[int, ...] | None = None  # id of each action in `shared`

    def __repr__(self) -> str:
        return f"Taxonomy({self.dataset!r}, {len(self.tasks)} tasks, {len(self.actions)} actions)"

    @classmethod
    def from_names(
        cls, dataset: str, tasks: Iterable[tuple[str, Iterable[int]]], actions: Iterable[str]
    ) -> Taxonomy:
        """Build from the names and action ids of tasks and the names of actions, in id order."""
        return cls(
            dataset=dataset,
            tasks=tuple(
                Task(id=number, name=name, actions=tuple(sorted(ids)))
                for number, (name, ids) in enumerate(tasks)
            ),
            actions=named_actions(actions),
        )

    @classmethod
    def read(cls, path: Path | str) -> Taxonomy:
        """Read a `taxonomy.json`.

        Raises:
            DataError: Missing, malformed or inconsistent file.
        """
        path = Path(path)
        return cls.from_dict(read_json(path, _REMEDY), place=str(path))

    @classmethod
    def from_dict(cls, value: Any, *, place: str = "taxonomy") -> Taxonomy:
        """Build from the parsed content of a `taxonomy.json`; `place` names it in errors."""
        with parsing(place, "a taxonomy", _REMEDY):
            actions = _by_id(_actions(value["actions"]), "action", place)
            listed = [
                Task(entry["id"], _text(entry["name"]), tuple(sorted(set(entry["actions"]))))
                for entry in value["tasks"]
            ]
            tasks = _by_id(listed, "task", place)
            name = _text(value["dataset"])
            shared, to_shared = _shared_space(value, len(actions), place)
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{place}: 'dataset' is {name!r}; expected a name. {_REMEDY}")
        for task in tasks:
            unknown = [action for action in task.actions if not is_id(action, len(actions))]
            if unknown:
                raise DataError(
                    f"{place}: task {task.id} ('{task.name}') names action {unknown[0]!r}, which "
                    f"is not among the {len(actions)} actions. Add it or correct the id."
                )
        return cls(dataset=name, tasks=tasks, actions=actions, shared=shared, to_shared=to_shared)

    def to_dict(self) -> dict[str, Any]:
        """Convert to the content of a `taxonomy.json`."""
        value: dict[str, Any] = {
            "dataset": self.dataset,
            "tasks": [
                {"id": task.id, "name": task.name, "actions": list(task.actions)}
                for task in self.tasks
            ],
            "actions": [asdict(action) for action in self.actions],
        }
        if self.shared is not None and self.to_shared is not None:
            value[f"map_{len(self.actions)}_to_{len(self.shared)}"] = list(self.to_shared)
            value[f"actions_{len(self.shared)}"] = [asdict(action) for action in self.shared]
        return value

    def names(self, actions: NDArray[np.integer[Any]] | list[int]) -> list[str]:
        """Names of a sequence of action ids."""
        return [self.actions[int(action)].name for action in actions]

    def in_shared_space(self) -> Taxonomy:
        """The same tasks over the shared vocabulary."""
        if self.shared is None or self.to_shared is None:
            raise DataError(
                f"taxonomy of '{self.dataset}': has no shared action vocabulary (no 'map_…_to_…' "
                "entry). Use its own actions."
            )
        mapped = self.to_shared
        tasks = tuple(
            Task(task.id, task.name, tuple(sorted({mapped[action] for action in task.actions})))
            for task in self.tasks
        )
        return Taxonomy(dataset=self.dataset, tasks=tasks, actions=self.shared)


def named_actions(names: Iterable[str]) -> tuple[Action, ...]:
    """Actions with the given names, in id order."""
    return tuple(Action(id=number, name=name) for number, name in enumerate(names))


_Entry = TypeVar("_Entry", Action, Task)


def _by_id(entries: list[_Entry], kind: str, place: str) -> tuple[_Entry, ...]:
    entries = sorted(entries, key=lambda entry: entry.id)
    for position, entry in enumerate(entries):
        if not is_id(entry.id, len(entries)) or entry.id != position:
            raise DataError(
                f"{place}: {kind} ids must run from 0 to {len(entries) - 1} without gap or repeat; "
                f"found {entry.id!r} instead of {position}. Renumber them."
            )
        if not isinstance(entry.name, str) or not entry.name.strip():
            raise DataError(f"{place}: {kind} {entry.id} has no name. Give it one.")
    if not entries:
        raise DataError(f"{place}: holds no {kind}s. {_REMEDY}")
    return tuple(entries)


def _shared_space(
    value: dict[str, Any], size: int, place: str
) -> tuple[tuple[Action, ...] | None, tuple[int, ...] | None]:
    maps = [key for key in value if re.fullmatch(r"map_\d+_to_\d+", key)]
    if not maps:
        return None, None
    names = value.get("actions_" + maps[0].rsplit("_", 1)[1])
    if names is None:
        raise DataError(f"{place}: has '{maps[0]}', but no names of its actions ('actions_…').")
    shared = _by_id(_actions(names), "shared action", place)
    mapped = tuple(value[maps[0]])
    if len(mapped) != size or not all(is_id(target, len(shared)) for target in mapped):
        expected = f"must give one of {len(shared)} ids to each of the {size} actions"
        raise DataError(f"{place}: '{maps[0]}' {expected}.")
    return shared, mapped


def _actions(entries: Any) -> list[Action]:
    return [Action(id=entry["id"], name=_text(entry["name"])) for entry in entries]


def _text(value: Any) -> Any:
    """Text in Unicode's normal form C; other values unchanged, for a later check."""
    return nfc(value) if isinstance(value, str) else value


def is_id(value: Any, size: int) -> bool:
    """Whether a value from JSON is one of the ids 0..size − 1 (1.0 and true are not)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


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
