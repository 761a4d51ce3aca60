"""Names that differ by little: pairs, suggestions as a table to review, and maps of names.

A map of names is a CSV file with the columns kind (task or step), from and to; other columns, and
lines that begin with #, are ignored.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cefito.data.annotations import Annotations, Taxonomy, folded, nfc
from cefito.data.readers.csv_file import Faults, read_csv
from cefito.errors import DataError, explained
from cefito.files import write_text

_COLUMNS = ("kind", "from", "to")
_SHOWN = 10  # unknown names in a message
_SHAPE = "Expected the columns kind (task or step), from and to."
_SIMILAR = 0.9


def names_alike(taxonomy: Taxonomy) -> list[tuple[str, str, str]]:
    """Pairs of near names of a taxonomy as ("task" or "step", one, other).

    Tasks are compared with each other, and so are the actions of each task. Actions of different
    tasks are a pair only if they are equal except for case, spaces and punctuation.
    """
    tasks = near_duplicates(dict.fromkeys(task.name for task in taxonomy.tasks))
    pairs = {
        pair: None
        for task in taxonomy.tasks
        for pair in near_duplicates(dict.fromkeys(taxonomy.names(list(task.actions))))
    }
    same: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(action.name for action in taxonomy.actions):
        same[folded(name)].append(name)
    for members in same.values():
        for other in members[1:]:
            if (other, members[0]) not in pairs:
                pairs[members[0], other] = None
    return [
        *(("task", one, other) for one, other in tasks),
        *(("step", one, other) for one, other in pairs),
    ]


def near_duplicates(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by little: in case, spaces, punctuation, or a few letters.

    Two names are near if 2 M / (sum of their lengths) is at least 0.9, where M is the length of
    their longest common subsequence, and their numbers agree. Pairs are in the order of the names.
    """
    listed = list(names)
    plain = [folded(name) for name in listed]
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, name in enumerate(plain):
        groups[tuple(re.findall(r"\d+", name))].append(number)
    pairs = sorted(pair for group in groups.values() for pair in _near(group, plain))
    return [(listed[one], listed[other]) for one, other in pairs]


def _near(group: list[int], plain: list[str]) -> Iterator[tuple[int, int]]:
    """Pairs of indices, the smaller first, of names that are near."""
    from rapidfuzz import fuzz, process

    for place, number in enumerate(group):
        others = group[place + 1 :]
        similar = process.cdist(
            [plain[number]],
            [plain[other] for other in others],
            scorer=fuzz.ratio,
            score_cutoff=100 * _SIMILAR - 1e-4,
            dtype=np.uint8,
        )[0]
        yield from ((number, others[found]) for found in np.flatnonzero(similar).tolist())


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
    letters, which are `doubtful`.
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
    return [
        Suggestion(
            kind,
            old,
            new,
            counts[kind][old],
            counts[kind][new],
            "case, spaces or punctuation" if _equal(old, new) else "a few letters",
        )
        for (kind, old), new in found.items()
    ]


def _equal(old: str, new: str) -> bool:
    return folded(old) == folded(new)


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
