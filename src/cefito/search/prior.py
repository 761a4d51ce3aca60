"""A prior over sequences given the task: smoothed n-grams of actions, counted in training windows.

The formulas stand in `ngrams`, how smoothing is chosen in `smoothing`. Here training windows are
counted, and chains made of the counts that a search can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.ngrams import START, Ids, Levels, Reals, Strengths, Tally
from cefito.search.smoothing import (
    DEFAULT_ORDER,
    DEFAULT_STRENGTHS,
    GRID,
    check_choices,
    chosen_smoothing,
)
from cefito.search.step_costs import StepCosts

__all__ = ["NGramPrior"]

TABLES_KEPT = 256  # tasks and sets of actions whose costs are kept,
TABLES_KEPT_MIB = 64  # as far as they take no more than this


class NGramPrior:
    """Smoothed n-grams of actions for each task; make one by `fit`, `tuned` or `from_arrays`.

    Attributes:
        order: Actions that an n-gram spans, 1 to 3.
        strengths: s₁, s₂, s₃ of the formulas in `ngrams`; levels beyond the order are not used.
        actions: Allowed action ids, position = task id.
        action_count: K, the number of actions of all tasks.
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
        if order not in (1, 2, 3):
            raise ConfigError(f"prior: order is {order}; expected 1, 2 or 3.")
        if len(strengths) != 3 or not all(0 < strength < np.inf for strength in strengths):
            raise ConfigError(
                f"prior: strengths are {list(strengths)}; expected three positive numbers, for "
                "single actions, pairs and triples."
            )
        self.order, self.action_count = order, action_count
        self.strengths: Strengths = (float(strengths[0]), float(strengths[1]), float(strengths[2]))
        self.actions = tuple(tuple(int(action) for action in row) for row in actions)
        for task, row in enumerate(self.actions):
            _check_actions(row, action_count, f"the actions of task {task}")
        self._events, self._counts = events, counts
        self._allowed = np.zeros((len(self.actions), action_count), dtype=np.bool_)
        for task, row in enumerate(self.actions):
            self._allowed[task, list(row)] = True
        counted = self._allowed[events[:, 0], events[:, 3]]
        self._levels = Levels.counted(
            events[counted],
            counts[counted],
            sizes=[len(row) for row in self.actions],
            action_count=action_count,
            order=order,
            strengths=self.strengths,
        )
        # Tables are made when they are first asked for, perhaps by several threads at once.
        self._tables: dict[tuple[int, tuple[int, ...]], tuple[Reals, ...]] = {}

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
    ) -> NGramPrior:
        """Count training windows.

        Args:
            sequences: Actions of training windows [N, T]; where windows overlap, their steps count
                in each.
            tasks: Their tasks [N].
            action_count: K, the number of actions of all tasks.
            actions: Allowed action ids of each task, position = task id. Steps to others are not
                counted.
            order: Actions that an n-gram spans, 1 to 3.
            strengths: s₁, s₂, s₃.

        Raises:
            ConfigError: Arrays of another shape or kind, ids out of range, no windows, a task
                without allowed actions, or settings out of range.
        """
        sequences, tasks = _check_sequences(sequences, tasks, action_count, len(actions))
        if not len(sequences):
            raise ConfigError("prior: there are no training windows to count; give at least one.")
        horizon = sequences.shape[1]
        padded = np.pad(sequences, ((0, 0), (2, 0)), constant_values=START)
        rows = np.concatenate(
            [np.column_stack([tasks, padded[:, step : step + 3]]) for step in range(horizon)]
        )
        events, counts = np.unique(rows, axis=0, return_counts=True)
        return cls(
            events=events,
            counts=counts.astype(np.int64),
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

        Those are chosen under which the validation windows are likeliest (`chosen_smoothing`).
        Windows with an action that their task does not allow say nothing, since no setting gives
        them a probability; without any others the defaults stay.

        Args:
            sequences: Actions of training windows [N, T].
            tasks: Their tasks [N].
            action_count: K, the number of actions of all tasks.
            actions: Allowed action ids of each task, position = task id.
            val_sequences: Actions of validation windows [M, T'].
            val_tasks: Their tasks [M].
            orders: Orders to choose from.
            grid: Strengths to choose from.
            known: A prior over the first of these tasks and actions, whose counts are added.

        Raises:
            ConfigError: As `fit`, for either set of windows but that there may be no validation
                windows; or nothing usable to choose from.
        """
        check_choices(orders, grid)
        fitted = cls.fit(
            sequences, tasks, action_count=action_count, actions=actions, order=max(orders)
        )
        if known is not None:
            fitted = fitted._with_counts(known)
        val_sequences, val_tasks = _check_sequences(
            val_sequences, val_tasks, action_count, len(actions)
        )
        usable = fitted._allowed[val_tasks[:, None], val_sequences].all(axis=1)
        order, strengths = chosen_smoothing(
            fitted._levels, val_sequences[usable], val_tasks[usable], orders=orders, grid=grid
        )
        return cls(
            events=fitted._events,
            counts=fitted._counts,
            actions=fitted.actions,
            action_count=action_count,
            order=order,
            strengths=strengths,
        )

    def _with_counts(self, known: NGramPrior) -> NGramPrior:
        """The same with the counts of another one added."""
        events, place = np.unique(
            np.concatenate([self._events, known._events]), axis=0, return_inverse=True
        )
        counts = np.zeros(len(events), dtype=np.int64)
        np.add.at(counts, place.ravel(), np.concatenate([self._counts, known._counts]))
        return NGramPrior(
            events=events,
            counts=counts,
            actions=self.actions,
            action_count=self.action_count,
            order=self.order,
            strengths=self.strengths,
        )

    def log_probability(
        self, sequences: NDArray[np.integer[Any]], tasks: NDArray[np.integer[Any]]
    ) -> Reals:
        """Log-probabilities [n] of sequences [n, T] of the given tasks [n].

        They are −∞ where the task does not allow an action.

        Raises:
            ConfigError: Arrays of another shape or kind, or ids out of range.
        """
        sequences, tasks = _check_sequences(sequences, tasks, self.action_count, len(self.actions))
        result = np.full(len(sequences), -np.inf)
        usable = self._allowed[tasks[:, None], sequences].all(axis=1)
        result[usable] = self._levels.log_probability(sequences[usable], tasks[usable])
        return result

    def costs(self, task: int, horizon: int, actions: tuple[int, ...] | None = None) -> StepCosts:
        """−log p of sequences of one task.

        The tables of the last tasks asked for are kept, as far as `TABLES_KEPT_MIB` goes; steps
        from the third on share one, of A³ numbers for order 3.

        Args:
            task: Task id.
            horizon: T ≥ 1.
            actions: Action ids to plan with, in any order; the task's allowed ones for None. The
                formulas hold with these in the place of the allowed ones: steps to others are not
                counted, and those never seen get what smoothing leaves them.

        Returns:
            The costs, their axes in the order of `actions`.

        Raises:
            ConfigError: No such task or action, repeated actions, none at all, or a horizon below
                1.
        """
        _check_horizon(horizon)
        ids = self.actions_of(task, actions)
        tables = self._tables.get((task, ids))
        if tables is None:
            tables = self._make_tables(task, ids)
            room, kept = TABLES_KEPT_MIB * 2**20 - self.table_bytes(len(ids)), 1
            for key in reversed(list(self._tables)):  # the latest stay
                room, kept = room - self.table_bytes(len(key[1])), kept + 1
                if room < 0 or kept > TABLES_KEPT:
                    self._tables.pop(key, None)
            self._tables[task, ids] = tables
        return StepCosts(costs=tuple(tables[min(step, 2)] for step in range(horizon)))

    def table_bytes(self, size: int) -> int:
        """Memory of the tables of a task with so many actions, about."""
        return 8 * int(size**self.order)

    def pruned(
        self, task: int, horizon: int, extra: int, actions: tuple[int, ...] | None = None
    ) -> StepCosts:
        """Zero cost for the likely transitions, infinite for all others.

        Likely after an action are those that followed it in a training window of the task, and the
        `extra` others of highest p₂ after it (p₁ for order 1), ties in the order of actions;
        likewise for starts of windows. An action that ended all its windows has no more than
        `extra` successors. Where no step of the task was counted, everything is free.

        Args:
            task: Task id.
            horizon: T ≥ 1.
            extra: Transitions that were never seen to allow after each action, and at the start.
            actions: As in `chain`.

        Raises:
            ConfigError: As `chain`, or a negative number of extra transitions.
        """
        _check_horizon(horizon)
        if extra < 0:
            raise ConfigError(f"prior: extra is {extra}; expected 0 or more transitions.")
        row = self.actions_of(task, actions)
        ids, levels = np.array(row, dtype=np.int64), self._levels_of(task, row)
        if not levels.tally("", task):
            return StepCosts.free(horizon, len(ids))
        levels = replace(levels, order=min(self.order, 2))
        pairs = np.broadcast_to(levels.step(1, task, [ids[:, None], ids]), (len(ids), len(ids)))
        start = _kept(levels.tally("ca", task, START, ids) > 0, levels.step(0, task, [ids]), extra)
        later = _kept(levels.tally("ca", task, ids[:, None], ids) > 0, pairs, extra)
        return StepCosts(costs=(start, *[later] * (horizon - 1)))

    def actions_of(self, task: int, actions: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The action ids that the axes of a chain of this task stand for.

        Raises:
            ConfigError: No such task, or actions that `chain` cannot use.
        """
        if not 0 <= task < len(self.actions):
            raise ConfigError(
                f"prior: there is no task {task}; expected 0 to {len(self.actions) - 1}."
            )
        if actions is None:
            return self.actions[task]
        ids = tuple(int(action) for action in actions)
        _check_actions(ids, self.action_count, "the actions to plan with")
        return ids

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a safetensors file; `from_arrays` reads it back."""
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
        """From what `to_arrays` gave; other arrays are ignored.

        Raises:
            ConfigError: An array is missing or does not fit the others.
        """
        try:
            events, counts, flat, sizes, strengths, settings = (
                arrays[name]
                for name in ("events", "counts", "actions", "sizes", "strengths", "settings")
            )
        except KeyError as problem:
            raise ConfigError(
                f"prior: array {problem} is missing; fit the prior again."
            ) from problem
        if (
            events.shape != (*counts.shape, 4)
            or flat.shape != (sizes.sum(),)
            or settings.shape != (2,)
            or any(array.dtype != np.int64 for array in (events, counts, flat, sizes, settings))
            or not _within(events[:, 1:], START, settings[1])
            or not _within(events[:, 0], 0, len(sizes))
        ):
            raise ConfigError("prior: the saved arrays do not fit each other; fit the prior again.")
        ends = np.cumsum(sizes)
        return cls(
            events=events,
            counts=counts,
            order=int(settings[0]),
            action_count=int(settings[1]),
            actions=[
                tuple(flat[end - size : end].tolist())
                for end, size in zip(ends, sizes, strict=True)
            ],
            strengths=strengths.tolist(),
        )

    def _levels_of(self, task: int, actions: tuple[int, ...]) -> Levels:
        """The levels for one task with other actions in the place of its allowed ones."""
        if actions == self.actions[task]:
            return self._levels
        chosen = (self._events[:, 0] == task) & np.isin(self._events[:, 3], actions)
        sizes = self._levels.sizes.copy()
        sizes[task] = len(actions)
        return replace(
            self._levels,
            sizes=sizes,
            tally=Tally(self._events[chosen], self._counts[chosen], self.action_count + 1),
        )

    def _make_tables(self, task: int, actions: tuple[int, ...]) -> tuple[Reals, ...]:
        """−log p of the first, second and all later steps."""
        levels, ids = self._levels_of(task, actions), np.array(actions, dtype=np.int64)
        steps = [ids[:, None, None], ids[:, None], ids]
        tables = []
        for step in range(3):
            axes = min(step + 1, self.order)
            cost = -np.log(levels.step(step, task, steps[2 - step :]))
            tables.append(np.ascontiguousarray(np.broadcast_to(cost, (len(ids),) * axes)))
        return tuple(tables)


def _kept(seen: NDArray[np.bool_], likelihood: Reals, extra: int) -> Reals:
    """Zero for what was seen and each row's likeliest `extra` others, infinite for the rest."""
    order = np.where(seen, -np.inf, -likelihood).argsort(axis=-1, kind="stable")
    rank = order.argsort(axis=-1, kind="stable")
    return np.where(rank < seen.sum(axis=-1, keepdims=True) + extra, 0.0, np.inf)


def _within(ids: NDArray[np.integer[Any]], least: int, below: int) -> bool:
    return not ids.size or bool(least <= ids.min() and ids.max() < below)


def _check_horizon(horizon: int) -> None:
    if horizon < 1:
        raise ConfigError(f"prior: horizon is {horizon}; expected at least 1.")


def _check_actions(actions: tuple[int, ...], action_count: int, what: str) -> None:
    if (
        not actions
        or len(set(actions)) != len(actions)
        or not all(0 <= action < action_count for action in actions)
    ):
        raise ConfigError(
            f"prior: {what} are {list(actions)}; expected one or more different ids from 0 to "
            f"{action_count - 1}."
        )


def _check_sequences(
    sequences: NDArray[np.integer[Any]],
    tasks: NDArray[np.integer[Any]],
    action_count: int,
    task_count: int,
) -> tuple[Ids, Ids]:
    sequences, tasks = np.asarray(sequences), np.asarray(tasks)
    if sequences.ndim != 2 or not sequences.shape[1] or tasks.shape != sequences.shape[:1]:
        raise ConfigError(
            f"prior: sequences have shape {list(sequences.shape)} and tasks {list(tasks.shape)}; "
            "expected [N, T] with T of at least 1, and [N]."
        )
    for ids, count, what in ((sequences, action_count, "actions"), (tasks, task_count, "tasks")):
        if ids.dtype.kind not in "iu" or not _within(ids, 0, count):
            raise ConfigError(
                f"prior: {what} of type {ids.dtype} with ids out of range or not whole; expected "
                f"whole numbers from 0 to {count - 1}."
            )
    return sequences.astype(np.int64), tasks.astype(np.int64)
