"""The facts about a query that its prompt states: its task and both ends, in words.

Networks trained on training windows recognise them; the true ones are stated in oracle rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ranked = tuple[tuple[int, float], ...]  # ids with their probabilities, most probable first


@dataclass(frozen=True, kw_only=True)
class PromptContext:
    """The facts that the prompt of one query states."""

    tasks: Ranked
    task_actions: Mapping[int, tuple[int, ...]]  # in training windows
    first: Ranked
    last: Ranked
    fixed_ends: bool  # plans must keep the first and the last action
    true_ends: bool = False  # annotated rather than recognised
    true_task: bool = False
    successors: Mapping[int, Ranked] = field(default_factory=dict)  # in training; may be unstated
    examples: tuple[tuple[int, ...], ...] = ()  # action sequences of the nearest windows

    @property
    def actions(self) -> tuple[int, ...]:
        """All actions that a plan may contain, ascending: of the tasks, the ends, the examples."""
        ends = {action for action, _ in (*self.first, *self.last)}
        return tuple(sorted(ends.union(*self.task_actions.values(), *self.examples)))

    def choices(self, horizon: int) -> tuple[tuple[int, ...], ...]:
        """The allowed actions of each step [T]."""
        choices = [self.actions] * horizon
        if self.fixed_ends:
            choices[0], choices[-1] = (self.first[0][0],), (self.last[0][0],)
        return tuple(choices)


def most_probable(probabilities: NDArray[np.floating], count: int) -> Ranked:
    """Return the `count` most probable ids of `probabilities` [K]; ties by id."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(index), float(probabilities[index])) for index in order)


def probable_successors(
    transitions: NDArray[np.float64], actions: Sequence[int], count: int
) -> dict[int, Ranked]:
    """Return at most `count` successors of each listed action among them, as seen in training.

    `transitions` [K, K]: probability of each next action, rows are the earlier one.
    """
    successors = {}
    for action in actions:
        ranked = most_probable(transitions[action, list(actions)], count)
        seen = tuple((actions[place], share) for place, share in ranked if share > 0)
        if seen:
            successors[action] = seen
    return successors
