"""Names of tasks and actions: lookup by name or id, and matching of two vocabularies.

In a match, actions are matched within their task. If one known entry has the name, every other
entry of that name is it; if both sides have equally many, they are paired by ascending ids;
otherwise it is new.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Action, Annotations, Task, Taxonomy, Video, folded, nfc
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows
from cefito.errors import ConfigError, DataError
from cefito.markup import counted, listed

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


def name_or_id(entries: Sequence[Task] | Sequence[Action], number: int) -> str:
    """Return text that `find_task`, or `find_action` with a task, reads as one of these entries."""
    names = {entry.id: entry.name for entry in entries}
    if [name.strip() for name in names.values()].count(names[number].strip()) > 1:
        return f"id:{number}"
    return "name:" * names[number].startswith("name:") + names[number]


def sequence(taxonomy: Taxonomy, actions: Sequence[int], *, ids: bool = False) -> str:
    """The names of actions, separated by arrows.

    Args:
        taxonomy: Names of actions.
        actions: Action ids.
        ids: Whether ids follow the names.
    """
    names = [taxonomy.actions[action].name for action in actions]
    if ids:
        names = [f"{name} ({action})" for name, action in zip(names, actions, strict=True)]
    return " → ".join(names)


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


@dataclass(frozen=True)
class LeftOut:
    """Numbers of windows that were left out: new task, or new action of a known task."""

    new_task: int = 0
    new_action: int = 0

    def __bool__(self) -> bool:
        return bool(self.new_task or self.new_action)


@dataclass(frozen=True)
class VocabularyMatch:
    """The tasks and actions of a data set in a known vocabulary; the id −1 stands for new ones."""

    known: Taxonomy  # C tasks, K actions
    other: Taxonomy  # the data set's: C' tasks, K' actions
    tasks: NDArray[np.int64]  # known id of each task of the data set, [C']
    actions: NDArray[np.int64]  # known id of each action in each of its tasks, [C', K']

    @cached_property
    def same(self) -> bool:
        """Whether both vocabularies have the same tasks and actions under the same ids."""
        return self.known.tasks == self.other.tasks and self.known.actions == self.other.actions

    @cached_property
    def new_tasks(self) -> tuple[Task, ...]:
        """Tasks of the data set that are not known."""
        return tuple(task for task in self.other.tasks if self.tasks[task.id] < 0)

    @cached_property
    def new_actions(self) -> tuple[tuple[Task, Action], ...]:
        """New actions of known tasks, with their tasks."""
        return tuple(
            (task, self.other.actions[action])
            for task in self.other.tasks
            if self.tasks[task.id] >= 0
            for action in task.actions
            if self.actions[task.id, action] < 0
        )

    def translated(self, windows: Windows) -> tuple[Windows, LeftOut]:
        """Translate windows to known ids, without those of new tasks or actions, without text.

        New actions before a window are left out of `before`.
        """

        def known(actions: NDArray[np.int64]) -> NDArray[np.int64]:
            """Return known ids of actions [N, T]; −1 stays."""
            return np.where(actions < 0, -1, self.actions[windows.tasks[:, None], actions])

        tasks, actions = self.tasks[windows.tasks], known(windows.actions)
        strange = ((actions < 0) & (windows.actions >= 0)).any(axis=1)
        kept = np.flatnonzero((tasks >= 0) & ~strange)
        left_out = LeftOut(int((tasks < 0).sum()), int((strange & (tasks >= 0)).sum()))
        before = None if windows.before is None else known(windows.before)
        predicted = windows.predicted
        if predicted is not None:
            predicted = np.where(predicted < 0, -1, self.tasks[predicted])
        translated = replace(
            windows,
            tasks=tasks,
            actions=actions,
            before=before,
            predicted=predicted,
            taxonomy=self.known,
            action_text=None,
        )
        return translated.subset(kept), left_out

    def translated_dataset(self, dataset: PreparedDataset) -> PreparedDataset:
        """Translate a data set all of whose tasks and actions are known, without predicted tasks.

        Raises:
            DataError: Names of tasks, or of actions of a task, are ambiguous.
        """

        def known(video: Video) -> Video:
            task, ids = int(self.tasks[video.task]), self.actions[video.task]
            steps = tuple(replace(step, action=int(ids[step.action])) for step in video.steps)
            missing = tuple(int(ids[action]) for action in video.missing)
            return replace(video, task=task, steps=steps, missing=missing, predicted={})

        videos = tuple(map(known, dataset.videos))
        if count := sum(
            min([video.task, *video.missing, *(step.action for step in video.steps)]) < 0
            for video in videos
        ):
            raise DataError(
                f"{dataset.folder}: {counted(count, 'video')} of tasks, or with actions within a "
                "task, whose names are ambiguous. Rename them."
            )
        text = dataset.action_text
        return replace(
            dataset,
            annotations=Annotations(self.known, videos),
            action_text=None if text is None else self.rows(text),
        )

    def rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Rearrange rows of the data set's actions [K', W] to known actions [K, W], or zeros."""
        result = np.zeros((len(self.known.actions), *values.shape[1:]), dtype=values.dtype)
        _, actions = np.nonzero(self.actions >= 0)
        result[self.actions[self.actions >= 0]] = values[actions]
        return result


def match_vocabulary(base: Taxonomy, other: Taxonomy) -> VocabularyMatch:
    """Find the tasks and actions of a data set (`other`) in a known vocabulary."""
    tasks = np.full(len(other.tasks), -1, dtype=np.int64)
    for theirs, ours in _paired(other.tasks, base.tasks).items():
        tasks[theirs] = ours
    actions = np.full((len(other.tasks), len(other.actions)), -1, dtype=np.int64)
    for task in other.tasks:
        if tasks[task.id] >= 0:
            pairs = _paired(_of(other, task), _of(base, base.tasks[tasks[task.id]]))
            for theirs, ours in pairs.items():
                actions[task.id, theirs] = ours
    return VocabularyMatch(known=base, other=other, tasks=tasks, actions=actions)


def extended_taxonomy(base: Taxonomy, other: Taxonomy) -> Taxonomy:
    """Append the new tasks and actions of a data set (`other`) to a known vocabulary.

    Known ids stay. An action that is new to its task takes the id of the known action of its name
    if the name is unique on both sides, and a new id otherwise. With new ids there is no shared
    vocabulary.
    """
    match = match_vocabulary(base, other)
    theirs = _by_name(other.actions)
    alone = {
        name: ids[0]
        for name, ids in _by_name(base.actions).items()
        if len(ids) == 1 and len(theirs.get(name, ())) <= 1
    }
    new_ids: dict[int, int] = {}  # new ids by ids of the data set
    names: list[str] = [action.name for action in base.actions]
    members = [set(task.actions) for task in base.tasks]
    titles = [task.name for task in base.tasks]

    def place(action: int) -> int:
        name = nfc(other.actions[action].name)
        if name in alone:
            return alone[name]
        if action not in new_ids:
            new_ids[action] = len(names)
            names.append(other.actions[action].name)
        return new_ids[action]

    for task, action in match.new_actions:
        base_task = base.tasks[match.tasks[task.id]]
        if any(nfc(entry.name) == nfc(action.name) for entry in _of(base, base_task)):
            several = f"has several actions '{action.name}' here or in the known vocabulary"
            raise DataError(f"task '{task.name}': {several}. Rename them.")
        members[base_task.id].add(place(action.id))
    for task in match.new_tasks:
        titles.append(task.name)
        members.append({place(action) for action in task.actions})
    tasks = zip(titles, members, strict=True)
    extended = Taxonomy.from_names(base.dataset, tasks, names)
    if new_ids:
        return extended
    return replace(extended, shared=base.shared, to_shared=base.to_shared)


def _paired(theirs: Iterable[Task | Action], ours: Iterable[Task | Action]) -> dict[int, int]:
    """Our id of each of their ids, by name; ids without a match are left out."""
    our_ids = _by_name(ours)
    pairs: dict[int, int] = {}
    for name, ids in _by_name(theirs).items():
        candidates = our_ids.get(name, [])
        if len(candidates) == 1:
            pairs |= dict.fromkeys(ids, candidates[0])
        elif len(candidates) == len(ids):
            pairs |= dict(zip(ids, candidates, strict=True))
        else:
            pairs |= {number: number for number in ids if number in candidates}
    return pairs


def _by_name(entries: Iterable[Task | Action]) -> dict[str, list[int]]:
    """Ascending ids of each name."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for entry in entries:
        ids[nfc(entry.name)].append(entry.id)
    return ids


def _of(taxonomy: Taxonomy, task: Task) -> list[Action]:
    return [taxonomy.actions[action] for action in task.actions]
