"""Merging of names that mean the same: suggestions as a table to review, and their application.

A map of names is a CSV file with the columns kind (task or step), from and to; other columns, and
lines that begin with #, are ignored.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cefito.data.annotations import Annotations, Taxonomy, folded, nfc
from cefito.data.readers.csv_file import Faults, read_csv
from cefito.data.readers.name_similarity import names_alike
from cefito.errors import DataError, explained
from cefito.files import write_text

_COLUMNS = ("kind", "from", "to")
_SHOWN = 10  # unknown names in a message
_SHAPE = "Expected the columns kind (task or step), from and to."


@dataclass(frozen=True)
class Merges:
    """New names of tasks and of steps by the old ones, and the file that lists them."""

    path: Path
    tasks: Mapping[str, str]
    steps: Mapping[str, str]
    said: str = ""  # note on the encoding

    def check_known(self, tasks: Iterable[str], steps: Iterable[str]) -> None:
        """Refuse names to replace that the annotations do not have."""
        for kind, wanted, known in (
            ("task", self.tasks, dict.fromkeys(tasks)),
            ("step", self.steps, dict.fromkeys(steps)),
        ):
            if unknown := [name for name in wanted if name not in known]:
                near = difflib.get_close_matches(unknown[0], known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else "Remove the line."
                listed = "', '".join(unknown[:_SHOWN]) + "'" + " …" * (len(unknown) > _SHOWN)
                raise _refused(f"{self.path}: the annotations have no {kind} '{listed}. {hint}")

    def note(self) -> str:
        """A summary in one sentence."""
        counts = f"{len(self.tasks)} names of tasks and {len(self.steps)} of steps"
        return f"{self.path.name}: {counts} were replaced. {self.said}".rstrip()


def _refused(message: str) -> DataError:
    return DataError(message, setting="merge")


class Suggestion(NamedTuple):
    """The rarer of two names that may mean the same, its replacement, and how often each occurs."""

    kind: str  # "task" or "step"
    old: str
    new: str
    old_count: int
    new_count: int
    why: str

    @property
    def doubtful(self) -> bool:
        """Whether the names differ by letters, which may be another action ("put on", "put in")."""
        return not _equal(self.old, self.new)


def suggest_merges(annotations: Annotations) -> list[Suggestion]:
    """Names that differ by little, each with the most frequent name near it, or else the first one.

    Names that are equal except for case, spaces and punctuation go before names that differ by
    letters, which are `doubtful`. A name that several actions of a task have is suggested to become
    itself, which merges them.
    """
    taxonomy = annotations.taxonomy
    counts = {
        "task": Counter(taxonomy.tasks[video.task].name for video in annotations.videos),
        "step": Counter(
            taxonomy.actions[step.action].name
            for video in annotations.videos
            for step in video.steps
        ),
    }
    order = {
        "task": {task.name: -task.id for task in reversed(taxonomy.tasks)},
        "step": {action.name: -action.id for action in reversed(taxonomy.actions)},
    }
    found: dict[tuple[str, str], str] = {}
    for kind, *pair in names_alike(taxonomy):

        def rank(name: str, kind: str = kind) -> tuple[int, int]:
            return counts[kind][name], order[kind][name]

        old, new = sorted(pair, key=rank)
        known = found.get((kind, old))
        if known is None or (_equal(old, new), rank(new)) > (_equal(old, known), rank(known)):
            found[kind, old] = new
    for name in equal_names(taxonomy):
        found.setdefault(("step", name), name)
    return [
        Suggestion(kind, old, new, counts[kind][old], counts[kind][new], _why(old, new))
        for (kind, old), new in found.items()
    ]


def _equal(old: str, new: str) -> bool:
    return folded(old) == folded(new)


def _why(old: str, new: str) -> str:
    if old == new:
        return "one name, several actions of a task"
    return "case, spaces or punctuation" if _equal(old, new) else "a few letters"


def equal_names(taxonomy: Taxonomy) -> dict[str, list[tuple[int, ...]]]:
    """Names that several actions of one task have, with the ids of these actions for each task."""
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for task in taxonomy.tasks:
        ids: dict[str, list[int]] = defaultdict(list)
        for action in task.actions:
            ids[taxonomy.actions[action].name].append(action)
        for name, members in ids.items():
            if len(members) > 1:
                found[name].append(tuple(members))
    return found


def write_merges(path: Path, suggestions: Iterable[Suggestion]) -> None:
    """Write suggestions as a map of names; doubtful ones are commented out by a #."""
    if path.exists():
        raise DataError(f"{path}: exists already. Remove it first.", setting="suggest_merges")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, "from_count", "to_count", "why"])
    for each in sorted(suggestions, key=lambda each: each.doubtful):
        writer.writerow(["#" * each.doubtful + each.kind, *each[1:]])
    write_text(path, text.getvalue())


def read_merges(path: Path) -> Merges:
    """Read a map of names; chains of replacements are followed to the last name."""
    maps: dict[str, dict[str, str]] = {"task": {}, "step": {}}
    places: dict[tuple[str, str], str] = {}
    rows, said = read_csv(path, _SHAPE)
    faults = Faults()
    for place, row in rows:
        with explained(path, "lacks a column", _SHAPE, KeyError, setting="merge"):
            cells = {column: " ".join(nfc(row[column] or "").split()) for column in _COLUMNS}
        if cells["kind"].startswith("#"):
            continue
        kind = cells["kind"].casefold()
        if kind not in maps or not cells["from"] or not cells["to"]:
            problem = "expected task or step, and two names. Correct the line."
            faults.add("names", place, problem, setting="merge")
            continue
        before = places.setdefault((kind, cells["from"]), place)
        if maps[kind].setdefault(cells["from"], cells["to"]) != cells["to"]:
            where = before.rpartition(", ")[2]
            problem = f"replaces '{cells['from']}' as {where} does. Keep one."
            faults.add("twice", place, problem, setting="merge")
    faults.check()
    tasks, steps = (
        {name: _last(name, entries, kind, path) for name in entries}
        for kind, entries in maps.items()
    )
    return Merges(path=path, tasks=tasks, steps=steps, said=said)


def _last(name: str, entries: Mapping[str, str], kind: str, path: Path) -> str:
    """Follow the replacements of a name to the last one."""
    chain = [name]
    while (following := entries.get(chain[-1], chain[-1])) != chain[-1]:
        if following in chain:
            cycle = " → ".join(f"'{each}'" for each in (*chain, following))
            raise _refused(f"{path}: the names of {kind}s form a cycle, {cycle}. Remove a line.")
        chain.append(following)
    return chain[-1]


def apply_merges(annotations: Annotations, merges: Merges) -> tuple[Annotations, tuple[int, ...]]:
    """Rename tasks and actions, and merge those whose names become equal.

    If several actions had the same name before (one in each task), only actions that share a task
    are merged. An action listed with its own name is merged with others of that name. Ids are
    renumbered without gaps in the old order. The old id that represents each action is returned,
    if possible of one that had the name before.
    """
    taxonomy = annotations.taxonomy
    task_names = [task.name for task in taxonomy.tasks]
    action_names = [action.name for action in taxonomy.actions]
    merges.check_known(task_names, action_names)
    task_groups = _groups(task_names, merges.tasks, [{0} for _ in task_names])
    task_of = {old: new for new, group in enumerate(task_groups) for old in group}
    owners = [
        {task_of[task.id] for task in taxonomy.tasks if action.id in task.actions}
        for action in taxonomy.actions
    ]
    groups = _groups(action_names, merges.steps, owners)
    action_of = {old: new for new, group in enumerate(groups) for old in group}
    kept = tuple(group[0] for group in groups)
    tasks = [
        (
            merges.tasks.get(task_names[group[0]], task_names[group[0]]),
            {action_of[old] for task in group for old in taxonomy.tasks[task].actions},
        )
        for group in task_groups
    ]
    names = [merges.steps.get(action_names[old], action_names[old]) for old in kept]
    shared = taxonomy.to_shared
    merged = replace(
        Taxonomy.from_names(taxonomy.dataset, tasks, names),
        shared=taxonomy.shared,
        to_shared=None if shared is None else tuple(shared[old] for old in kept),
    )
    videos = [video.mapped(action_of, task_of) for video in annotations.videos]
    return Annotations(taxonomy=merged, videos=tuple(videos)), kept


def _groups(
    names: list[str], renamed: Mapping[str, str], owners: list[set[int]]
) -> list[list[int]]:
    """Groups of entries to merge, ordered by first id; each starts with the entry that is kept."""
    unique = len(set(names)) == len(names)
    members: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        members[renamed.get(name, name)].append(number)
    found: list[list[int]] = []
    for new, numbers in members.items():
        if not any(names[number] in renamed for number in numbers):
            found += [[number] for number in numbers]
            continue
        groups: list[tuple[list[int], set[int]]] = []
        for number in numbers:
            near = [group for group in groups if unique or group[1] & owners[number]]
            joined = [number, *(each for group in near for each in group[0])]
            groups = [group for group in groups if group not in near]
            groups.append((joined, owners[number].union(*(group[1] for group in near))))
        found += [
            sorted(group, key=lambda number: (names[number] != new, number)) for group, _ in groups
        ]
    return sorted(found, key=min)
