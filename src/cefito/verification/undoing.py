"""Steps that undo earlier ones.

An action that no right video of the task has undoes one done before if their names differ in
opposite words alone, as in "detach base" after "attach base".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from cefito.data.vocabulary import Taxonomy, words
from cefito.verification.order import TaskOrder

_OPPOSITES = """
add remove, assemble disassemble, attach detach, close open, connect disconnect, cover uncover,
down up, drop lift, fasten unfasten, fold unfold, hook unhook, in out, insert remove, install
uninstall, load unload, lock unlock, loosen tighten, lower raise, mount dismount, mount unmount,
off on, pack unpack, place remove, plug unplug, put take, roll unroll, screw unscrew, tie untie,
wrap unwrap
"""


def present(
    order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy
) -> tuple[list[int], list[int]]:
    """Return the places in the order of the actions that are done, and of those undone.

    Args:
        order: Order of the task.
        steps: Actions that were done, in order.
        taxonomy: Names of the actions.
    """
    done, undone = list[int](), list[int]()
    for action in steps:
        if _is_right(order, action):
            place = order.index[action]
            done = [*(other for other in done if other != place), place]
            undone = [other for other in undone if other != place]
            continue
        taken = [place for place in done if _opposed(order.actions[place], action, taxonomy)]
        done = [other for other in done if other not in taken]
        undone += taken
    return done, undone


def repetitions(order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy) -> list[int]:
    """Return how many steps of its action came before each step, since one undid them.

    Arguments are those of `present`.
    """
    totals, counts = dict[int, int](), []
    for action in steps:
        counts.append(totals.get(action, 0))
        if not _is_right(order, action):
            totals = {a: n for a, n in totals.items() if not _opposed(a, action, taxonomy)}
        totals[action] = counts[-1] + 1
    return counts


def _is_right(order: TaskOrder, action: int) -> bool:
    """Return whether right videos of the task have an action, or it has none but the action."""
    place = order.index.get(action)
    return place is not None and bool(order.occurs[place] or not order.videos)


def _opposed(action: int, other: int, taxonomy: Taxonomy) -> bool:
    return _are_opposite(words(taxonomy.actions[action].name), words(taxonomy.actions[other].name))


def _are_opposite(name: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two names differ in opposite words alone."""
    if len(name) != len(other):
        return False
    differing = [frozenset(pair) for pair in zip(name, other, strict=True) if len({*pair}) == 2]
    return bool(differing) and _opposites().issuperset(differing)


@cache
def _opposites() -> frozenset[frozenset[str]]:
    return frozenset(frozenset(pair.split()) for pair in _OPPOSITES.split(","))
