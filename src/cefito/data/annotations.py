"""Annotations: the vocabulary of tasks and actions, and the annotated videos, with their files."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from cefito.errors import DataError, explained
from cefito.files import MAX_JSON, read_json, read_text, write_text
from cefito.markup import as_seconds, counted
from cefito.settings import Record, parse_record, read_record


def parsing(place: str, kind: str, expected: str) -> AbstractContextManager[None]:
    """Refuse JSON with missing keys or wrong types, read at a place that should hold a kind.

    Args:
        place: Where the JSON comes from.
        kind: What it should hold.
        expected: Its form, for the message.
    """
    kinds = KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError
    return explained(place, f"not {kind}", expected, *kinds)


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

_Name = Annotated[str, AfterValidator(nfc), Field(pattern=r"\S")]
_AUTHORS_TASK = re.compile(r"([0-9]+)_(?:[0-9]+_)?(.*\S.*)", re.DOTALL)
_MOST_IDS = 10_000
_Names = dict[int, str]
"""Names by id."""


@dataclass(frozen=True)
class Action:
    """One action of the vocabulary; ids run from 0 to K − 1."""

    id: int
    name: _Name


@dataclass(frozen=True)
class Task:
    """One task and the ids of the actions that it may take, ascending."""

    id: int
    name: _Name
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
        parts = counted(len(self.tasks), "task"), counted(len(self.actions), "action")
        return f"Taxonomy({self.dataset!r}, {', '.join(parts)})"

    @classmethod
    def from_names(
        cls, dataset: str, tasks: Iterable[tuple[str, Iterable[int]]], actions: Iterable[str]
    ) -> Taxonomy:
        """Build from the names and action ids of tasks and the names of actions, in id order.

        Args:
            dataset: Name of the data set.
            tasks: Name and action ids of each task.
            actions: Name of each action.
        """
        return cls(
            dataset=dataset,
            tasks=tuple(
                Task(id=number, name=name, actions=tuple(sorted(ids)))
                for number, (name, ids) in enumerate(tasks)
            ),
            actions=named_actions(actions),
        )

    @classmethod
    def from_ids(
        cls, dataset: str, tasks: _Names, actions: _Names, owned: dict[int, set[int]], place: Path
    ) -> Taxonomy:
        """Build from names by id and the action ids of each task.

        An id that does not occur gets a made-up name; one above 9,999 is refused (DataError).

        Args:
            dataset: Name of the data set.
            tasks: Names of tasks by id.
            actions: Names of actions by id.
            owned: Action ids of each task.
            place: File, for messages.
        """
        names = _padded(tasks, "task", place)
        rows = [(name, owned.get(number, ())) for number, name in enumerate(names)]
        return cls.from_names(dataset, rows, _padded(actions, "action", place))

    @classmethod
    def read(cls, path: Path | str) -> Taxonomy:
        """Read a `taxonomy.json`."""
        path = Path(path)
        return cls.from_dict(read_json(path, _REMEDY), place=str(path))

    @classmethod
    def from_dict(cls, value: Any, *, place: str = "taxonomy") -> Taxonomy:
        """Build from the parsed content of a `taxonomy.json`; `place` names it in errors.

        The form of the paper's authors is read, too.
        """
        if _is_authors(value):
            value = _common_form(value, place)
        file = read_record(_File, value, f"{place}: not a taxonomy", _REMEDY, DataError)
        actions = _by_id(file.actions, "action", place)
        sets = [replace(task, actions=tuple(sorted(set(task.actions)))) for task in file.tasks]
        tasks = _by_id(sets, "task", place)
        for task in tasks:
            _check_ids(task.actions, len(actions), f"{place}: task {task.id} ('{task.name}')")
        shared, to_shared = _shared_space(value, len(actions), place)
        return cls(file.dataset, tasks, actions, shared, to_shared)

    def to_dict(self) -> dict[str, Any]:
        """Convert to the content of a `taxonomy.json`."""
        value: dict[str, Any] = {
            "dataset": self.dataset,
            "tasks": [asdict(task) | {"actions": list(task.actions)} for task in self.tasks],
            "actions": [asdict(action) for action in self.actions],
        }
        if self.shared is not None and self.to_shared is not None:
            value[f"map_{len(self.actions)}_to_{len(self.shared)}"] = list(self.to_shared)
            value[f"actions_{len(self.shared)}"] = [asdict(action) for action in self.shared]
        return value

    def names(self, actions: NDArray[np.integer[Any]] | list[int]) -> list[str]:
        """Names of a sequence of action ids."""
        return [self.actions[action].name for action in np.asarray(actions).tolist()]

    def sequence(self, actions: Sequence[int], *, ids: bool = False) -> str:
        """Return the names of actions, separated by arrows; `ids` follow the names if asked."""
        names = [self.actions[action].name for action in actions]
        if ids:
            names = [f"{name} ({action})" for name, action in zip(names, actions, strict=True)]
        return " → ".join(names)


def named_actions(names: Iterable[str]) -> tuple[Action, ...]:
    """Actions with the given names, in id order."""
    return tuple(Action(id=number, name=name) for number, name in enumerate(names))


def name_or_id(entries: Sequence[Task] | Sequence[Action], number: int) -> str:
    """Return text that `find_task`, or `find_action` with a task, reads as one of these entries."""
    names = {entry.id: entry.name for entry in entries}
    if [name.strip() for name in names.values()].count(names[number].strip()) > 1:
        return f"id:{number}"
    return "name:" * names[number].startswith("name:") + names[number]


def _padded(names: _Names, kind: str, place: object) -> list[str]:
    """Names in the order of ids, with a made-up name for each id that does not occur."""
    if wrong := [number for number in names if not 0 <= number < _MOST_IDS]:
        expected = f"expected 0 to {_MOST_IDS - 1:,}"
        raise DataError(f"{place}: {kind} id {wrong[0]}; {expected}. Renumber them.")
    return [names.get(number, f"{kind} {number}") for number in range(max(names, default=-1) + 1)]


class _File(Record, extra="ignore"):
    dataset: _Name
    tasks: list[Task] = Field(min_length=1)
    actions: list[Action] = Field(min_length=1)


class _Shared(Record):
    names: list[Action] = Field(min_length=1)
    ids: list[int]


_Named = TypeVar("_Named", Action, Task)


def _by_id(entries: list[_Named], kind: str, place: str) -> tuple[_Named, ...]:
    entries = sorted(entries, key=lambda entry: entry.id)
    if [entry.id for entry in entries] != list(range(len(entries))):
        expected = f"0 to {len(entries) - 1} without gap or repeat"
        raise DataError(f"{place}: {kind} ids must run from {expected}. Renumber them.")
    return tuple(entries)


def _check_ids(ids: Iterable[int], size: int, place: str) -> None:
    unknown = [number for number in ids if not 0 <= number < size]
    if unknown:
        expected = f"which is not among the {size} actions"
        raise DataError(f"{place} names action {unknown[0]}, {expected}. Correct the id.")


def _shared_space(
    value: dict[str, Any], size: int, place: str
) -> tuple[tuple[Action, ...] | None, tuple[int, ...] | None]:
    maps = [key for key in value if re.fullmatch(r"map_\d+_to_\d+", key)]
    if not maps:
        return None, None
    place, names = f"{place}: '{maps[0]}'", "actions_" + maps[0].rsplit("_", 1)[1]
    entries = {"names": value.get(names), "ids": value[maps[0]]}
    expected = f"Expected one id for each of the {size} actions, and '{names}' as 'actions'."
    space = read_record(_Shared, entries, f"{place}: not valid", expected, DataError)
    shared = _by_id(space.names, "shared action", place)
    _check_ids(space.ids, len(shared), place)
    if len(space.ids) != size:
        raise DataError(f"{place}: has {len(space.ids)} ids. {expected}")
    return shared, tuple(space.ids)


def _is_authors(value: Any) -> bool:
    """Whether JSON is a taxonomy as the paper's authors write it.

    It is {"0_23521_Make Jello Shots": {"0": "pour water", …}, …}: id, the data set's own number of
    the task (CrossTask alone) and its name, and the names of its actions by their ids.
    """
    return (
        isinstance(value, dict)
        and bool(value)
        and all(_AUTHORS_TASK.fullmatch(key) for key in value)
        and all(isinstance(actions, dict) for actions in value.values())
    )


def _common_form(value: dict[str, dict[str, Any]], place: str) -> dict[str, Any]:
    """Return a taxonomy in the authors' form as the content of a `taxonomy.json`.

    Ids that no task has get made-up names.
    """
    names: _Names = {}
    tasks = []
    for key, actions in value.items():
        number, name = _AUTHORS_TASK.fullmatch(key).groups()  # type: ignore[union-attr]
        for action, called in actions.items():
            if not re.fullmatch(r"[0-9]{1,4}", action) or not isinstance(called, str):
                expected = f"expected an id from 0 to {_MOST_IDS - 1:,}, and a name"
                raise DataError(f"{place}: '{key}' has the action {action!r}; {expected}.")
            if names.setdefault(int(action), called) != called:
                both = f"'{names[int(action)]}' and '{called}'"
                raise DataError(f"{place}: action {action} is {both}. Keep one name.")
        tasks.append({"id": int(number), "name": name, "actions": list(map(int, actions))})
    return {
        "dataset": Path(place).stem.partition("_taxonomy")[0],
        "tasks": tasks,
        "actions": [
            {"id": action, "name": name}
            for action, name in enumerate(_padded(names, "action", place))
        ],
    }


SPLITS = ("train", "val", "test")
_LONGEST = 1e7  # seconds of a video; more are Unix times
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
    """Make a step of times in seconds (numbers or text), which are checked.

    Args:
        start: Start in seconds.
        end: End in seconds, not before the start.
        action: Id of the action.
        place: Where the step was read; begins messages.
    """
    times = f"the step runs from {start!r} to {end!r}"
    expected = "Expected seconds with 0 ≤ start ≤ end. Correct or remove the step."
    with explained(place, times, expected, TypeError, ValueError, OverflowError):
        step = Step(start=as_seconds(start), end=as_seconds(end), action=action)
        if not (0 <= step.start <= step.end and math.isfinite(step.end)):
            raise ValueError("the times are not in order")
        if step.end > _LONGEST:
            raise ValueError("they seem to be dates; a video starts at 0")
    return step


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
    errors: list[tuple[_Name, ...]] | None = None
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
