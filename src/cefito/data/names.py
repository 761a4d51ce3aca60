"""Lookup of tasks and actions by name or id."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from cefito.data.taxonomy import Action, Task, Taxonomy
from cefito.data.text import folded, nfc
from cefito.errors import ConfigError

__all__ = ["find_action", "find_actions", "find_task", "in_words", "sequence"]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_LISTED = 8  # most matches shown
_NEAR = 3  # most suggestions


def find_task(taxonomy: Taxonomy, given: int | str, *, setting: str = "task") -> int:
    """Find the id of a task by its id or name.

    Case, spaces and punctuation matter only between names that differ in nothing else. A whole
    number is an id; "id:3" and "name:3" resolve the conflict if a name is a number, too.
    """
    found = _find(taxonomy.tasks, given, "task", setting)
    if len(found) > 1:
        entries = _list(f"{task} {taxonomy.tasks[task].name!r}" for task in found)
        problem = f"{given!r} is the name of several tasks: {entries}. Give the id."
        raise ConfigError(problem, setting=setting)
    return found[0]


def find_action(
    taxonomy: Taxonomy, given: int | str, *, task: int | None = None, setting: str = ""
) -> int:
    """Find the id of one action by its id, or by its name among the actions of a task, if given."""
    found = find_actions(taxonomy, given, task=task, setting=setting)
    named = isinstance(given, str) and not _WHOLE.fullmatch(given.strip())
    if task is not None and named and not set(found) & set(taxonomy.tasks[task].actions):
        owners = dict.fromkeys(name for action in found for name in _owners(taxonomy, action))
        problem = f"action {given!r} is not one of the task '{taxonomy.tasks[task].name}' but of"
        known = _list(map(repr, owners)) or "none"
        raise ConfigError(f"{problem} {known}. Give an action of this task.", setting=setting)
    if len(found) > 1:
        entries = _list(
            f"{action} '{taxonomy.actions[action].name}' of "
            f"{_list(map(repr, _owners(taxonomy, action))) or 'no task'}"
            for action in found
        )
        wanted = "id" if task is not None else "task, or the id"
        problem = f"{given!r} is the name of several actions: {entries}. Give the {wanted}."
        raise ConfigError(problem, setting=setting)
    return found[0]


def find_actions(
    taxonomy: Taxonomy, given: int | str, *, task: int | None = None, setting: str = ""
) -> tuple[int, ...]:
    """Ascending ids of all actions of a name: of the task if it has some, else of any task."""
    first = () if task is None else taxonomy.tasks[task].actions
    return _find(taxonomy.actions, given, "action", setting, first)


def sequence(taxonomy: Taxonomy, actions: Sequence[int], *, ids: bool = False) -> str:
    """The names of actions, separated by arrows; with `ids`, each followed by its id."""
    names = [taxonomy.actions[action].name for action in actions]
    if ids:
        names = [f"{name} ({action})" for name, action in zip(names, actions, strict=True)]
    return " → ".join(names)


def in_words(message: str, taxonomy: Taxonomy) -> str:
    """Add the names of actions to a message that contains only their ids."""

    def named(found: re.Match[str]) -> str:
        number = int(found[0])
        known = number < len(taxonomy.actions)
        return f"{number} ('{taxonomy.actions[number].name}')" if known else found[0]

    def each(found: re.Match[str]) -> str:
        return re.sub(r"\d{1,9}", named, found[0])

    return re.sub(r"\b(?:action \d{1,9}\b|choose among [\d, ]+)", each, message)


def _find(
    entries: Sequence[Task] | Sequence[Action],
    given: int | str,
    kind: str,
    setting: str,
    first: Sequence[int] = (),
) -> tuple[int, ...]:
    """The ids of the entries with a given id or name, preferably among those in `first`."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not whole and not isinstance(given, str):
        raise ConfigError(f"{kind} {given!r}: expected its id or its name.", setting=setting)
    text = nfc(str(given)).strip()
    sign, _, rest = text.partition(":")
    if sign == "id" or _WHOLE.fullmatch(text):
        return (_by_id(entries, rest.strip() if sign == "id" else text, given, kind, setting),)
    name = rest.strip() if sign == "name" else text
    pools: list[Sequence[Task | Action]] = [[entries[number] for number in first], entries]
    for pool in pools:
        for form in (str, folded):
            wanted = form(name)
            found = tuple(entry.id for entry in pool if wanted and form(entry.name) == wanted)
            if found:
                return found
    raise ConfigError(f"unknown {kind} {name!r}; {_near(name, pools)}", setting=setting)


def _by_id(
    entries: Sequence[Task] | Sequence[Action], text: str, given: int | str, kind: str, setting: str
) -> int:
    """The entry of a numeric text, unless another entry has this number as its name."""
    number = int(text) if _WHOLE.fullmatch(text) and len(text) < 10 else None
    named = [entry.id for entry in entries if entry.name == given]
    if named and named != [number]:
        problem = f"{kind} {text}: is the name of {kind} {named[0]}, not its id. Write name:{text} "
        raise ConfigError(f"{problem}for this one, or id:{text}.", setting=setting)
    if number is None or number not in range(len(entries)):
        problem = f"unknown {kind} {text}; there are 0 to {len(entries) - 1}."
        raise ConfigError(problem, setting=setting)
    return number


def _near(name: str, pools: Sequence[Sequence[Task | Action]]) -> str:
    """Suggestions of similar names, starting with the first pool."""
    near: dict[str, None] = {}
    for pool in pools:
        plain = {folded(entry.name): entry.name for entry in reversed(pool)}
        for found in difflib.get_close_matches(folded(name), plain, n=_NEAR):
            near[plain[found]] = None
    if not near:
        return "no name is similar. cefito data list shows all names."
    return f"similar names: {', '.join(map(repr, list(near)[:_NEAR]))}."


def _owners(taxonomy: Taxonomy, action: int) -> list[str]:
    return [task.name for task in taxonomy.tasks if action in task.actions]


def _list(entries: Iterable[str]) -> str:
    """The first entries, separated by commas, and the number of further ones."""
    listed = list(entries)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
