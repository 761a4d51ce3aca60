"""What is left to do in a video, the likeliest next step first.

Usual actions that were not done are left, and those that were undone. An action that no right video
of the task has undoes one done before if their names differ in opposite words alone, as in "detach
base" after "attach base". The graph allows an action after all that come before it. Of those
allowed, the undone ones come first, then the one of the highest

    log(n(l, a) + 2 p(a occurs) / Σ p(b occurs)) − 3 max p(b occurs) max(0, 2 p(b before a) − 1),

where l is the last action done, and the maximum is over the actions b that are not. The 3 was
chosen on training videos.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from cefito.data.annotations import Taxonomy
from cefito.verification.order import TaskOrder

_OPPOSITES = """
add remove, assemble disassemble, attach detach, close open, connect disconnect, cover uncover,
down up, drop lift, fasten unfasten, fold unfold, hook unhook, in out, insert remove, install
uninstall, load unload, lock unlock, loosen tighten, lower raise, mount dismount, mount unmount,
off on, pack unpack, place remove, plug unplug, put take, roll unroll, screw unscrew, tie untie,
wrap unwrap
"""
_AFTER = 2.0  # steps that the prior of the next one counts as
_NEEDED = 3.0  # cost of a step that surely needs one that was not done


def repair(order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy) -> tuple[int, ...]:
    """Return the actions that are left to do, in an order that the graph allows.

    Args:
        order: Order of the task.
        steps: Actions that were done, in order.
        taxonomy: Names of the actions.
    """
    done, undone = present(order, steps, taxonomy)
    usual = np.flatnonzero(order.usual >= 0.5).tolist()
    left = dict.fromkeys([*undone, *(place for place in usual if place not in done)])
    prior, places = _AFTER * order.usual / order.usual.sum(), np.nan_to_num(order.place)
    last, actions = (done[-1] if done else order.size), list[int]()
    while left:
        allowed = [place for place in left if not order.earlier[[*left], place].any()]
        again = [place for place in allowed if place in undone]
        lacking = np.delete(order.lead, done, axis=0).max(axis=0, initial=0)
        costs = _NEEDED * lacking - np.log(order.follows[last, : order.size] + prior)
        last = min(again or allowed, key=lambda place: (costs[place], places[place], place))
        done.append(last)
        actions.append(int(order.actions[last]))
        del left[last]
    return tuple(actions)


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
    words = {place: _words(taxonomy.actions[action].name) for action, place in order.index.items()}
    for action in steps:
        place = order.index.get(action)
        if place is not None and (order.occurs[place] or not order.videos):
            done = [*(other for other in done if other != place), place]
            undone = [other for other in undone if other != place]
            continue
        name = _words(taxonomy.actions[action].name)
        taken = [other for other in done if _are_opposite(words[other], name)]
        done = [other for other in done if other not in taken]
        undone += taken
    return done, undone


@lru_cache(maxsize=1 << 12)
def _words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", name.casefold()))


def _are_opposite(name: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two names differ in opposite words alone."""
    if len(name) != len(other):
        return False
    differing = [frozenset(pair) for pair in zip(name, other, strict=True) if len({*pair}) == 2]
    return bool(differing) and _opposites().issuperset(differing)


@cache
def _opposites() -> frozenset[frozenset[str]]:
    return frozenset(frozenset(pair.split()) for pair in _OPPOSITES.split(","))
