"""Names that differ by little, and so may mean the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from cefito.data.taxonomy import Taxonomy
from cefito.data.text import folded

__all__ = ["names_alike", "near_duplicates"]

_SIMILAR = 0.9
_ROWS = 512  # names compared at a time with all that may be near, which bounds memory
_WORD = 64  # letters


def near_duplicates(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by little: in case, spaces, punctuation, or a few letters of many.

    Two names are near if 2 M / (sum of their lengths) is at least 0.9, M letters being common to
    both, in one order. Numbers count: "add 1 egg" and "add 2 eggs" are no pair.

    Args:
        names: Any number; 10,000 take less than a second.

    Returns:
        Pairs in the order of the names.
    """
    listed = list(names)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    plain = [folded(name) for name in listed]
    for number, name in enumerate(plain):
        groups[tuple(re.findall(r"\d+", name))].append(number)
    pairs = sorted(pair for group in groups.values() for pair in _near(group, plain))
    return [(listed[one], listed[other]) for one, other in pairs]


def _near(group: list[int], plain: list[str]) -> Iterator[tuple[int, int]]:
    """Pairs of numbers, the smaller first, of names that are near."""
    from rapidfuzz import fuzz, process  # only where names are compared

    if len(group) < 2:
        return
    order = sorted(group, key=lambda number: len(plain[number]))
    names = [plain[number] for number in order]
    lengths = np.array([len(name) for name in names])
    # of two near names the longer has at most 1.1 / 0.9 times the letters of the shorter
    reach = (2 - _SIMILAR) / _SIMILAR
    for first in range(0, len(names), _ROWS):
        last = min(first + _ROWS, len(names))
        longest = float(lengths[last - 1])
        end = int(np.searchsorted(lengths, reach * longest + 1e-9, side="right"))
        # beginnings that fit a machine word are compared fast; n letters to drop or add in whole
        # names are at most 2 n in their beginnings
        edits = 2 * (1 - _SIMILAR) * (1 + reach) * longest
        beginnings = 1 - edits / (2 * max(1, min(_WORD, int(lengths[first]))))
        whole = lengths[end - 1] <= _WORD or beginnings <= 0
        cut = None if whole else _WORD
        similar = process.cdist(
            [name[:cut] for name in names[first:last]],
            [name[:cut] for name in names[first:end]],
            scorer=fuzz.ratio,
            score_cutoff=100 * (_SIMILAR if whole else beginnings) - 1e-4,
            dtype=np.uint8,
        )
        for row, column in np.argwhere(similar).tolist():
            if row < column and (whole or _is_near(names[first + row], names[first + column])):
                one, other = order[first + row], order[first + column]
                yield min(one, other), max(one, other)


def _is_near(one: str, other: str) -> bool:
    from rapidfuzz import fuzz

    return fuzz.ratio(one, other, score_cutoff=100 * _SIMILAR - 1e-4) > 0


def names_alike(taxonomy: Taxonomy) -> list[tuple[str, str, str]]:
    """Near names of a taxonomy as ("task" or "step", one, other).

    Tasks are compared with each other, and the actions of a task; actions of different tasks only
    where they are the same but for case, spaces and punctuation.
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
