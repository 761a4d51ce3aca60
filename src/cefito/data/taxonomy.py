"""The vocabulary of a data set: tasks, actions, and the actions of each task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cefito.data.text import nfc, parsing
from cefito.errors import DataError
from cefito.files import read_json

__all__ = ["Action", "Task", "Taxonomy"]

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
