"""What a language model is told of a query: never more than our own models recognise in it.

Observations are numbers, which a language model cannot see. Task, first and last action are named
by networks that were trained on training windows; the true ones are told only where the query bears
them, which an oracle's does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["PromptContext", "Ranked", "likeliest", "listed_successors"]

Ranked = tuple[tuple[int, float], ...]
"""Ids with their probabilities, likeliest first."""


@dataclass(frozen=True, kw_only=True)
class PromptContext:
    """What is told of a query.

    Attributes:
        tasks: Tasks that it may be of; one where only that is told.
        task_actions: Of each of these tasks the actions that training windows show.
        first: Candidates for the first action; one where only that is told.
        last: Candidates for the last action.
        settled: Whether the ends are to be kept, so that only what lies between is asked for.
        annotated: Whether the ends are the true ones.
        known_task: Whether the task was given rather than recognised.
        successors: Of each action its likeliest successors in training; empty where not told.
        examples: Sequences of the nearest training windows.
    """

    tasks: Ranked
    task_actions: Mapping[int, tuple[int, ...]]
    first: Ranked
    last: Ranked
    settled: bool
    annotated: bool = False
    known_task: bool = False
    successors: Mapping[int, Ranked] = field(default_factory=dict)
    examples: tuple[tuple[int, ...], ...] = ()

    @property
    def actions(self) -> tuple[int, ...]:
        """All actions that a plan may have, ascending: of the tasks, the ends and the examples."""
        named: set[int] = {action for action, _ in (*self.first, *self.last)}
        return tuple(
            sorted(named.union(*self.task_actions.values(), *(set(row) for row in self.examples)))
        )

    def choices(self, horizon: int) -> tuple[tuple[int, ...], ...]:
        """The actions that each step may have [T]."""
        rows = [self.actions] * horizon
        if self.settled:
            rows[0], rows[-1] = (self.first[0][0],), (self.last[0][0],)
        return tuple(rows)


def likeliest(probabilities: NDArray[np.floating], count: int) -> Ranked:
    """The likeliest of all, ties by their ids.

    Args:
        probabilities: Of each id.
        count: How many.
    """
    order = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(index), float(probabilities[index])) for index in order)


def listed_successors(
    transitions: NDArray[np.float64], actions: Sequence[int], count: int
) -> dict[int, Ranked]:
    """Of each listed action its likeliest successors among the listed ones, as training has them.

    Args:
        transitions: Probability of each next action, [K, K]; the row is the earlier action.
        actions: The listed actions, ascending.
        count: Most successors of an action.

    Returns:
        Those that were ever seen; actions without any are left out.
    """
    columns = np.array(actions, dtype=np.int64)
    rows: Iterable[tuple[int, Ranked]] = (
        (
            action,
            tuple(
                (actions[place], share)
                for place, share in likeliest(transitions[action, columns], count)
                if share > 0
            ),
        )
        for action in actions
    )
    return {action: row for action, row in rows if row}
