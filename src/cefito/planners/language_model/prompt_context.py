"""The facts about a query that its prompt states: what the trained networks recognise in it.

A language model cannot read observations, which are vectors. Networks trained on training windows
name the task and both ends; the true ones are stated only if the query carries them (oracle rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["PromptContext", "Ranked", "most_probable", "probable_successors"]

Ranked = tuple[tuple[int, float], ...]
"""Ids with their probabilities, most probable first."""


@dataclass(frozen=True, kw_only=True)
class PromptContext:
    """The facts that the prompt of one query states.

    Attributes:
        tasks: Candidate tasks.
        task_actions: The actions of each candidate task in training windows.
        first: Candidates for the first action.
        last: Candidates for the last action.
        fixed_ends: Whether plans must keep the first and the last action.
        true_ends: Whether the ends are annotated rather than recognised.
        true_task: Whether the task is given rather than recognised.
        successors: The most probable training successors of each action; empty if not stated.
        examples: Action sequences of the nearest training windows.
    """

    tasks: Ranked
    task_actions: Mapping[int, tuple[int, ...]]
    first: Ranked
    last: Ranked
    fixed_ends: bool
    true_ends: bool = False
    true_task: bool = False
    successors: Mapping[int, Ranked] = field(default_factory=dict)
    examples: tuple[tuple[int, ...], ...] = ()

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
    """Return the most probable successors of each listed action among the listed actions.

    Args:
        transitions: Probability of each next action, [K, K]; rows are the earlier action.
        actions: The listed actions, ascending.
        count: Maximum successors per action.

    Returns:
        Successors seen in training; actions without any are left out.
    """
    successors = {}
    for action in actions:
        ranked = most_probable(transitions[action, list(actions)], count)
        seen = tuple((actions[place], share) for place, share in ranked if share > 0)
        if seen:
            successors[action] = seen
    return successors
