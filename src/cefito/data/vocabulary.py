"""The vocabulary of tasks and actions: its file, and entries looked up by name or id."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from cefito.errors import ConfigError, DataError
from cefito.files import read_json
from cefito.markup import counted, listed
from cefito.settings import Record, read_record

_WHOLE = re.compile(r"[+-]?[0-9]+")
_list = partial(listed, most=8)  # matches shown
_NEAR = 3  # most suggestions
_FEW = 5  # names, which are all listed
_LEAST = 3  # letters of a name that others can be similar to
_SIMILAR, _WORSE = 59, 15  # least per cent, and how much less than the best one has


def nfc(text: str) -> str:
    """Convert to Unicode's normal form C, where "é" is one letter (two in Apple's file names)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """A name without case, punctuation and repeated spaces, to compare names by."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))


@lru_cache(maxsize=1 << 12)
def words(name: str) -> tuple[str, ...]:
    """Return the words and the numbers of a name in order, without case."""
    return tuple(re.findall(r"[^\W\d]+|\d+", folded(name)))


_REMEDY = (
    'Expected {"dataset", "tasks": [{"id", "name", "actions": [ids]}], "actions": [{"id", '
    '"name"}]}.'
)

Name = Annotated[str, AfterValidator(nfc), Field(pattern=r"\S")]
"""A name in a file, which is not empty."""
_AUTHORS_TASK = re.compile(r"([0-9]+)_(?:[0-9]+_)?(.*\S.*)", re.DOTALL)
_MOST_IDS = 10_000
_Names = dict[int, str]
"""Names by id."""


@dataclass(frozen=True)
class Action:
    """One action of the vocabulary; ids run from 0 to K − 1."""

    id: int
    name: Name


@dataclass(frozen=True)
class Task:
    """One task and the ids of the actions that it may take, ascending."""

    id: int
    name: Name
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
        actions = _in_id_order(file.actions, "action", place)
        sets = [replace(task, actions=tuple(sorted(set(task.actions)))) for task in file.tasks]
        tasks = _in_id_order(sets, "task", place)
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
    dataset: Name
    tasks: list[Task] = Field(min_length=1)
    actions: list[Action] = Field(min_length=1)


class _Shared(Record):
    names: list[Action] = Field(min_length=1)
    ids: list[int]


_Named = TypeVar("_Named", Action, Task)


def _in_id_order(entries: list[_Named], kind: str, place: str) -> tuple[_Named, ...]:
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
    shared = _in_id_order(space.names, "shared action", place)
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


def find_task(taxonomy: Taxonomy, sought: int | str, *, setting: str = "task") -> int:
    """Find the id of a task by its id or name.

    Case, spaces and punctuation matter only between names that differ in nothing else. Text is a
    name if one is equal to it; other whole numbers are ids, as are "id:3" and a number that is not
    text. "name:3" is no id. Arguments are as of `find_action`.
    """
    ids, _ = _find(taxonomy.tasks, sought, "task", setting)
    if len(ids) > 1:
        entries = _list(f"{task} {taxonomy.tasks[task].name!r}" for task in ids)
        problem = f"{sought!r} is the name of several tasks: {entries}. Give the id."
        raise ConfigError(problem, setting=setting)
    return ids[0]


def find_action(
    taxonomy: Taxonomy, sought: int | str, *, task: int | None = None, setting: str = ""
) -> int:
    """Find the id of one action by its id, or by its name among the actions of a task, if given.

    Args:
        taxonomy: Names of tasks and actions.
        sought: Id or name.
        task: Id of the task.
        setting: Setting at fault if there is none.
    """
    first = () if task is None else taxonomy.tasks[task].actions
    ids, named = _find(taxonomy.actions, sought, "action", setting, first)
    if task is not None and named and not set(ids) & set(taxonomy.tasks[task].actions):
        owners = dict.fromkeys(name for action in ids for name in tasks_of(taxonomy, action))
        problem = f"action {sought!r} is not one of the task '{taxonomy.tasks[task].name}' but of"
        listed = _list(map(repr, owners)) or "none"
        raise ConfigError(f"{problem} {listed}. Give an action of this task.", setting=setting)
    if len(ids) > 1:
        entries = _list(
            f"{action} '{taxonomy.actions[action].name}' of "
            f"{_list(map(repr, tasks_of(taxonomy, action))) or 'no task'}"
            for action in ids
        )
        wanted = "id" if task is not None else "task, or the id"
        problem = f"{sought!r} is the name of several actions: {entries}. Give the {wanted}."
        raise ConfigError(problem, setting=setting)
    return ids[0]


def find_done(taxonomy: Taxonomy, sought: int | str, *, task: int | None = None) -> int:
    """Find the id of a step that was done: an action of the task, if it has one, or of any.

    Arguments are as of `find_action`.
    """
    ids = find_actions(taxonomy, sought, task=task, setting="done")
    return ids[0] if len(ids) == 1 else find_action(taxonomy, sought, task=task, setting="done")


def find_actions(
    taxonomy: Taxonomy, sought: int | str, *, task: int | None = None, setting: str = ""
) -> tuple[int, ...]:
    """Ascending ids of all actions of a name: of the task if it has some, else of any task.

    Arguments are as of `find_action`.
    """
    first = () if task is None else taxonomy.tasks[task].actions
    return _find(taxonomy.actions, sought, "action", setting, first)[0]


def in_words(message: str, taxonomy: Taxonomy) -> str:
    """Add the names of actions to a message that contains only their ids."""

    def named(match: re.Match[str]) -> str:
        number = int(match[0])
        is_known = number < len(taxonomy.actions)
        return f"{number} ('{taxonomy.actions[number].name}')" if is_known else match[0]

    def each(match: re.Match[str]) -> str:
        return re.sub(r"\d{1,9}", named, match[0])

    return re.sub(r"\b(?:action \d{1,9}\b|choose among [\d, ]+)", each, message)


def _find(
    entries: Sequence[Task] | Sequence[Action],
    sought: int | str,
    kind: str,
    setting: str,
    first: Sequence[int] = (),
) -> tuple[tuple[int, ...], bool]:
    """The ids of the entries with a given id or name, and whether it is a name.

    Those of a name are preferably among `first`.
    """
    whole = isinstance(sought, int | np.integer) and not isinstance(sought, bool)
    if not whole and not isinstance(sought, str):
        raise ConfigError(f"{kind} {sought!r}: expected its id or its name.", setting=setting)
    text = nfc(str(sought)).strip()
    pools: list[Sequence[Task | Action]] = [[entries[number] for number in first], entries]

    def named(name: str, *forms: Callable[[str], str]) -> tuple[int, ...]:
        for pool in pools:
            for form in forms:
                wanted = form(name)
                ids = tuple(entry.id for entry in pool if wanted and form(entry.name) == wanted)
                if ids:
                    return ids
        return ()

    sign, colon, behind = text.partition(":")
    sign = sign if colon else ""  # "name" alone may be a name
    if sign == "name" and (ids := named(behind.strip(), str.strip, folded)):
        return ids, True
    number = sign == "id" or bool(_WHOLE.fullmatch(text))  # unless there is such a name
    forms = (str.strip,) if number else (str.strip, folded)
    if isinstance(sought, str) and (ids := named(text, *forms)):
        return ids, True
    if number:
        return (_by_id(entries, behind.strip() if sign == "id" else text, kind, setting),), False
    name = behind.strip() if sign == "name" else text
    raise ConfigError(f"unknown {kind} {name!r}; {_near(name, pools)}", setting=setting)


def _by_id(entries: Sequence[Task] | Sequence[Action], text: str, kind: str, setting: str) -> int:
    """The entry of a numeric text."""
    number = int(text) if _WHOLE.fullmatch(text) and len(text) < 10 else None
    if number is None or number not in range(len(entries)):
        problem = f"unknown {kind} {text}; there are 0 to {len(entries) - 1}."
        raise ConfigError(problem, setting=setting)
    return number


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three known names, most similar first: spelled alike as a whole or in part.

    "Butter" is similar to "Butter aufstreichen".
    """
    from rapidfuzz import fuzz, process

    wanted = folded(name)
    plain: dict[str, str] = {}
    for entry in names:
        plain.setdefault(folded(entry), entry)
    if len(wanted) < _LEAST:
        return []
    candidates = process.extract(
        wanted, list(plain), scorer=fuzz.WRatio, limit=_NEAR, score_cutoff=_SIMILAR
    )
    candidates.sort(key=lambda candidate: (-candidate[1], len(candidate[0])))  # stable
    return [plain[entry] for entry, score, _ in candidates if score >= candidates[0][1] - _WORSE]


def _near(name: str, pools: Sequence[Sequence[Task | Action]]) -> str:
    """Suggestions of similar names, starting with the first pool."""
    near = dict.fromkeys(
        similar for pool in pools for similar in similar_names(name, [entry.name for entry in pool])
    )
    if near:
        return f"similar names: {', '.join(map(repr, list(near)[:_NEAR]))}."
    names = dict.fromkeys(entry.name for pool in pools for entry in pool)
    if 0 < len(names) <= _FEW:
        return f"there are {', '.join(map(repr, names))}."
    return "no name is similar. taxonomy.json lists all names."


def tasks_of(taxonomy: Taxonomy, action: int) -> list[str]:
    """Return the names of the tasks of an action."""
    return [task.name for task in taxonomy.tasks if action in task.actions]
