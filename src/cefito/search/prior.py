"""A prior over sequences given the task: smoothed n-grams of actions of training windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.ngrams import (
    DEFAULT_ORDER,
    DEFAULT_STRENGTHS,
    GRID,
    START,
    Ids,
    Levels,
    Strengths,
    chosen_smoothing,
)
from cefito.search.step_costs import StepCosts


class NGramPrior:
    """Smoothed n-grams of actions for each task; make one by `fit`, `tuned` or `from_arrays`.

    Attributes:
        order: Actions that an n-gram spans, 1 to 3.
        strengths: s₁, s₂, s₃ of the formulas in `ngrams`; levels beyond the order are not used.
        actions: Allowed action ids, position = task id.
        levels: The formulas over all allowed actions.
    """

    def __init__(
        self,
        *,
        events: Ids,
        counts: Ids,
        actions: Sequence[tuple[int, ...]],
        action_count: int,
        order: int,
        strengths: Sequence[float],
    ) -> None:
        self.order, self.action_count = order, action_count
        self.strengths: Strengths = (float(strengths[0]), float(strengths[1]), float(strengths[2]))
        self.actions = tuple(tuple(int(action) for action in row) for row in actions)
        self._events, self._counts = events, counts
        self._allowed = np.zeros((len(self.actions), action_count), dtype=np.bool_)
        for task, row in enumerate(self.actions):
            self._allowed[task, list(row)] = True
        counted = self._allowed[events[:, 0], events[:, 3]]
        self.levels = Levels.counted(
            events[counted],
            counts[counted],
            sizes=[len(row) for row in self.actions],
            action_count=action_count,
            order=order,
            strengths=self.strengths,
        )

    @classmethod
    def fit(
        cls,
        sequences: NDArray[np.integer[Any]],
        tasks: NDArray[np.integer[Any]],
        *,
        action_count: int,
        actions: Sequence[tuple[int, ...]],
        order: int = DEFAULT_ORDER,
        strengths: Sequence[float] = DEFAULT_STRENGTHS,
        known: NGramPrior | None = None,
    ) -> NGramPrior:
        """Count training windows [N, T] of tasks [N]: all steps to actions that the task allows.

        Windows may be padded with −1 after their last action. The counts of `known`, a prior over
        the first of these tasks and actions, are added.
        """
        horizon = sequences.shape[1]
        # events (task, a_t−2, a_t−1, a_t) of all steps, [N · T, 4]
        padded = np.pad(sequences, ((0, 0), (2, 0)), constant_values=START)
        rows = np.concatenate(
            [np.column_stack([tasks, padded[:, step : step + 3]]) for step in range(horizon)]
        )
        rows = rows[rows[:, 3] >= 0]
        number = np.ones(len(rows), dtype=np.int64)
        if known is not None:
            rows = np.concatenate([rows, known._events])
            number = np.concatenate([number, known._counts])
        events, place = np.unique(rows, axis=0, return_inverse=True)
        counts = np.zeros(len(events), dtype=np.int64)
        np.add.at(counts, place.ravel(), number)
        return cls(
            events=events,
            counts=counts,
            actions=actions,
            action_count=action_count,
            order=order,
            strengths=strengths,
        )

    @classmethod
    def tuned(
        cls,
        sequences: NDArray[np.integer[Any]],
        tasks: NDArray[np.integer[Any]],
        *,
        action_count: int,
        actions: Sequence[tuple[int, ...]],
        val_sequences: NDArray[np.integer[Any]],
        val_tasks: NDArray[np.integer[Any]],
        orders: Sequence[int] = (1, 2, 3),
        grid: Sequence[float] = GRID,
        known: NGramPrior | None = None,
    ) -> NGramPrior:
        """Count training windows, and choose order and strengths by validation windows.

        Validation windows [M, T'] have the highest likelihood under the chosen values
        (`chosen_smoothing`). Windows with an action that their task does not allow are ignored,
        since no setting gives them a probability; without any others the defaults stay. `known` as
        in `fit`.
        """
        own: dict[str, Any] = {"action_count": action_count, "actions": actions, "known": known}
        fitted = cls.fit(sequences, tasks, order=max(orders), **own)
        # of padded sequences whose task allows all actions
        allowed = fitted._allowed[val_tasks[:, None], val_sequences] | (val_sequences < 0)
        usable = allowed.all(axis=1)
        held = val_sequences[usable].astype(np.int64), val_tasks[usable].astype(np.int64)
        order, strengths = chosen_smoothing([(fitted.levels, *held)], orders=orders, grid=grid)
        return cls.fit(sequences, tasks, order=order, strengths=strengths, **own)

    def costs(self, task: int, horizon: int) -> StepCosts:
        """Return −log p of sequences of one task, over the places of its allowed actions.

        Steps from the third on share one table, of A³ numbers for order 3.
        """
        ids = np.array(self.actions[task], dtype=np.int64)
        steps, tables = [ids[:, None, None], ids[:, None], ids], []
        for step in range(min(horizon, 3)):
            cost = -np.log(self.levels.step(step, task, steps[2 - step :]))
            shape = (len(ids),) * min(step + 1, self.order)
            tables.append(np.ascontiguousarray(np.broadcast_to(cost, shape)))
        return StepCosts(costs=tuple(tables[min(step, 2)] for step in range(horizon)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a safetensors file; `from_arrays` is the inverse."""
        return {
            "events": self._events,
            "counts": self._counts,
            "actions": np.array([action for row in self.actions for action in row], dtype=np.int64),
            "sizes": np.array([len(row) for row in self.actions], dtype=np.int64),
            "strengths": np.array(self.strengths),
            "settings": np.array([self.order, self.action_count], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> NGramPrior:
        """Make a prior from the arrays of `to_arrays`."""
        order, action_count = arrays["settings"].tolist()
        parts = np.split(arrays["actions"], np.cumsum(arrays["sizes"])[:-1])
        return cls(
            events=arrays["events"],
            counts=arrays["counts"],
            actions=[tuple(part.tolist()) for part in parts],
            action_count=action_count,
            order=order,
            strengths=arrays["strengths"].tolist(),
        )
