"""Tasks and actions looked up by name or id, and similar names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from cefito.data.annotations import Action, Task, Taxonomy, folded, nfc
from cefito.errors import ConfigError
from cefito.markup import listed

_WHOLE = re.compile(r"[+-]?[0-9]+")
_list = partial(listed, most=8)  # matches shown
_NEAR = 3  # most suggestions
_LEAST = 3  # letters of a name that others can be similar to
_SIMILAR, _WORSE = 59, 15  # least per cent, and how much less than the best one has


def find_task(taxonomy: Taxonomy, sought: int | str, *, setting: str = "task") -> int:
    """Find the id of a task by its id or name.

    Case, spaces and punctuation matter only between names that differ in nothing else. Text is a
    name if one is equal to it; other whole numbers are ids, as are "id:3" and a number that is not
    text. "name:3" is no id.

    Args:
        taxonomy: Names of tasks and actions.
        sought: Id or name.
        setting: Setting at fault if there is none.
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

    Args:
        taxonomy: Names of tasks and actions.
        sought: Id or name.
        task: Id of the task.
    """
    ids = find_actions(taxonomy, sought, task=task, setting="done")
    return ids[0] if len(ids) == 1 else find_action(taxonomy, sought, task=task, setting="done")


def find_actions(
    taxonomy: Taxonomy, sought: int | str, *, task: int | None = None, setting: str = ""
) -> tuple[int, ...]:
    """Ascending ids of all actions of a name: of the task if it has some, else of any task.

    Args:
        taxonomy: Names of tasks and actions.
        sought: Id or name.
        task: Id of the task.
        setting: Setting at fault if there is none.
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
    if not near:
        return "no name is similar. taxonomy.json lists all names."
    return f"similar names: {', '.join(map(repr, list(near)[:_NEAR]))}."


def tasks_of(taxonomy: Taxonomy, action: int) -> list[str]:
    """Return the names of the tasks of an action."""
    return [task.name for task in taxonomy.tasks if action in task.actions]
