"""Names that differ by little, and so may mean the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from cefito.data.annotations import Taxonomy, folded

_SIMILAR = 0.9
_BLOCK = 512  # names compared at a time, which bounds memory


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

    order = sorted(group, key=lambda number: len(plain[number]))
    names = [plain[number] for number in order]
    lengths = np.array([len(name) for name in names])
    reach = (2 - _SIMILAR) / _SIMILAR  # largest ratio of the lengths of two near names
    for first in range(0, len(names), _BLOCK):
        last = min(first + _BLOCK, len(names))
        end = int(np.searchsorted(lengths, reach * lengths[last - 1] + 1e-9, side="right"))
        similar = process.cdist(
            names[first:last],
            names[first:end],
            scorer=fuzz.ratio,
            score_cutoff=100 * _SIMILAR - 1e-4,
            dtype=np.uint8,
        )
        for row, column in np.argwhere(similar).tolist():
            if row < column:
                one, other = order[first + row], order[first + column]
                yield min(one, other), max(one, other)


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
