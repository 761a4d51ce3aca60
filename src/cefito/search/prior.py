"""A prior over sequences given the task: smoothed n-grams of actions of training windows.

The probability of a step depends on zero, one or two steps before it. Let n(…) count steps of the
task's training windows, only those whose action is among the A allowed ones, s₁, s₂, s₃ be the
strengths of the three levels, and d, c, a the actions of three consecutive steps of a window. Each
level is interpolated with the one below it, the mean of a Dirichlet posterior (MacKay and Peto
1995, "A hierarchical Dirichlet language model"; Witten and Bell 1991 is the case of a strength that
differs by context):

    p₁(a)       = (n(a) + s₁ / A) / (n() + s₁)
    p₂(a | c)   = (n(c, a) + s₂ b₂(a | c)) / (n(c) + s₂)
    p₃(a | d,c) = (n(d, c, a) + s₃ b₃(a | d, c)) / (n(d, c) + s₃)

Procedures repeat an action at once, or return to the action before the last, at rates that are
independent of the action's frequency. The back-off distributions therefore treat these separately,
and all other actions in proportion to the level below:

    b₂(c | c)   = ρ,   b₂(a | c) = (1 − ρ) p₁(a) / (1 − p₁(c))        for a ≠ c
    b₃(a | d,c) = λ(a) p₂(a | c) / (1 + (λ − 1) p₂(d | c))            λ(a) = λ for a = d, else 1;
                                                                      all p₂(a | c) where d = c

A repeat gets a share ρ, the rate of a = c among the steps with a step before them. A return has its
odds under p₂ multiplied by λ: a constant share would discard the information of pairs (in COIN a
quarter of all steps are returns, of few pairs). λ = odds(σ) / odds(σ'), where σ is the rate of
a = d among the steps with two different actions before them, and σ' its expectation from pairs
alone, the mean of n(c, d) / n(c) over the same steps. All rates are taken over the counted steps of
all tasks, as (k + ½) / (m + 1) for k of m steps, then for each task as (k + 20 · overall rate) /
(m + 20). A single allowed action has all probability.

The start of a window is a context of its own: the first step has p₂ with n(start, a) and b₂ = p₁,
the second p₃ with n(start, c, a) and b₃ = p₂. Order 2 stops at p₂, order 1 at p₁. A task without
training windows has n = 0 everywhere: uniform but for ρ and λ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.search.step_costs import StepCosts

START = -1  # placeholder for the actions before the window
RATE_STRENGTH = 20.0  # steps that the overall rate counts as in the rate of a task

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Strengths = tuple[float, float, float]
Task = int | Ids


class Tally:
    """Counts of steps by their context.

    Args:
        events: Task, action two steps before, action before and action of steps [M, 4]; `START`
            before the window.
        counts: Number of occurrences of each [M].
        base: Number that is larger than all ids.
    """

    def __init__(self, events: Ids, counts: Ids, base: int) -> None:
        self.base = base
        columns = {
            "": (0,),
            "a": (0, 3),
            "c": (0, 2),
            "ca": (0, 2, 3),
            "dc": (0, 1, 2),
            "dca": (0, 1, 2, 3),
        }
        self._sums: dict[str, tuple[Ids, Ids]] = {}
        for name, places in columns.items():
            keys, inverse = np.unique(
                self._key(*(events[:, place] for place in places)), return_inverse=True
            )
            sums = np.zeros(len(keys) + 1, dtype=np.int64)  # the last one for unseen keys
            np.add.at(sums, inverse.ravel(), counts)
            self._sums[name] = np.append(keys, np.iinfo(np.int64).max), sums

    def __call__(self, name: str, *ids: ArrayLike) -> Reals:
        """Return counts by the task and the actions of `name`: "" for none, up to "dca"."""
        keys, sums = self._sums[name]
        wanted = self._key(*ids)
        place = np.searchsorted(keys, wanted)
        return np.where(keys[place] == wanted, sums[place], 0).astype(np.float64)

    def _key(self, *ids: ArrayLike) -> Ids:
        key: Ids = np.asarray(ids[0], dtype=np.int64)
        for column in ids[1:]:
            key = key * self.base + (np.asarray(column, dtype=np.int64) + 1)
        return key


@dataclass(frozen=True)
class Levels:
    """The formulas of the module; task, a, c and d are ids that broadcast."""

    tally: Tally  # counts of steps to allowed actions
    sizes: Ids  # A of each task [C]
    repeats: Reals  # ρ of each task [C]
    returns: Reals  # λ of each task [C]
    order: int
    strengths: Strengths  # s₁, s₂, s₃

    @classmethod
    def counted(
        cls,
        events: Ids,
        counts: Ids,
        *,
        sizes: Sequence[int],
        action_count: int,
        order: int,
        strengths: Strengths,
    ) -> Levels:
        """Make the levels from the steps of training windows.

        Args:
            events: Task, action two steps before, action before and action of steps to allowed
                actions [M, 4]; `START` before the window.
            counts: Number of occurrences of each [M].
            sizes: Number of allowed actions of each task [C].
            action_count: K.
            order: Order of the n-grams, 1 to 3.
            strengths: Strengths s₁, s₂, s₃ of smoothing.
        """
        tally = Tally(events, counts, action_count + 1)
        task, d, c, a = events.T
        after, between = c != START, (d != START) & (d != c)
        # probability of each return by pairs alone, whose mean is σ'
        expected = tally("ca", task, c, d) / tally("c", task, c)

        def rates(hits: NDArray[Any], among: NDArray[np.bool_]) -> Reals:
            number, total = (
                np.bincount(task, weights=counts * mask, minlength=len(sizes))
                for mask in (hits * among, among)
            )
            overall = (number.sum() + 0.5) / (total.sum() + 1)
            return np.asarray((number + RATE_STRENGTH * overall) / (total + RATE_STRENGTH))

        return cls(
            tally=tally,
            sizes=np.array(sizes, dtype=np.int64),
            repeats=rates(c == a, after),
            returns=_odds(rates(d == a, between)) / _odds(rates(expected, between)),
            order=order,
            strengths=strengths,
        )

    def log_probability(self, sequences: Ids, tasks: Ids) -> Reals:
        """Return Σ_t log p(a_t | …), [n], of sequences of allowed actions [n, T] of tasks [n].

        Sequences may be padded with −1 after their last action.
        """
        columns, there = list(sequences.clip(min=0).T), sequences.T >= 0
        return np.asarray(
            sum(
                np.where(there[step], np.log(self.step(step, tasks, columns)), 0.0)
                for step in range(len(columns))
            )
        )

    def after(self, task: Task, d: Ids, c: Ids, a: Ids) -> Reals:
        """Return the probability of action a after d and c, each `START` before the first step.

        Args:
            task: Task ids.
            d: Actions two steps before, or `START`.
            c: Actions before, or `START`.
            a: Actions.
        """
        later = [np.maximum(ids, 0) for ids in (d, c)]
        shares = [self.step(step, task, [*later[2 - step :], a]) for step in range(3)]
        return np.where(c == START, shares[0], np.where(d == START, shares[1], shares[2]))

    def step(self, step: int, task: Task, sequences: Sequence[Ids]) -> Reals:
        """Return the probability of a step's action, given the actions of all steps so far.

        Args:
            step: Number of actions before.
            task: Task ids.
            sequences: Actions of each step up to this one.
        """
        a = sequences[step]
        if self.order == 1:
            return self.single(task, a)
        if step == 0:
            return self.first(task, a)
        c = sequences[step - 1]
        if self.order == 2:
            return self.pair(task, c, a)
        if step == 1:
            return self._interpolated(
                3,
                self.tally("dca", task, START, c, a),
                self.tally("dc", task, START, c),
                self.pair(task, c, a),
            )
        return self.triple(task, sequences[step - 2], c, a)

    def single(self, task: Task, a: Ids) -> Reals:
        """p₁(a)."""
        return self._interpolated(
            1, self.tally("a", task, a), self.tally("", task), 1 / self.sizes[task]
        )

    def first(self, task: Task, a: Ids) -> Reals:
        """p₂(a | start)."""
        return self._interpolated(
            2, self.tally("ca", task, START, a), self.tally("c", task, START), self.single(task, a)
        )

    def pair(self, task: Task, c: Ids, a: Ids) -> Reals:
        """p₂(a | c), arguments as of `triple`."""
        return self._interpolated(
            2, self.tally("ca", task, c, a), self.tally("c", task, c), self._below_pair(task, c, a)
        )

    def triple(self, task: Task, d: Ids, c: Ids, a: Ids) -> Reals:
        """p₃(a | d, c).

        Args:
            task: Task ids.
            d: Actions two steps before.
            c: Actions before.
            a: Actions.
        """
        factor = np.where(d == c, 1.0, self.returns[task])
        below = (
            np.where(a == d, factor, 1.0)
            * self.pair(task, c, a)
            / (1 + (factor - 1) * self.pair(task, c, d))
        )
        return self._interpolated(
            3, self.tally("dca", task, d, c, a), self.tally("dc", task, d, c), below
        )

    def _below_pair(self, task: Task, c: Ids, a: Ids) -> Reals:
        size, seen = self.sizes[task], self.tally("", task)
        others = self._interpolated(1, seen - self.tally("a", task, c), seen, 1 - 1 / size)
        others = np.where(size > 1, others, 1.0)
        share = np.where(size > 1, self.repeats[task], 1.0)
        return np.asarray(np.where(a == c, share, (1 - share) * self.single(task, a) / others))

    def _interpolated(self, level: int, count: Reals, total: Reals, below: Reals) -> Reals:
        strength = self.strengths[level - 1]
        return np.asarray((count + strength * below) / (total + strength))


def _odds(rate: Reals) -> Reals:
    return rate / (1 - rate)


DEFAULT_ORDER = 3
DEFAULT_STRENGTHS = (3.0, 10.0, 10.0)
GRID = (0.3, 1.0, 3.0, 10.0, 30.0)


def chosen_smoothing(
    parts: Sequence[tuple[Levels, Ids, Ids]], *, orders: Sequence[int], grid: Sequence[float]
) -> tuple[int, Strengths]:
    """Return the order and strengths of the highest log-likelihood of held-out sequences.

    For each order the strengths are improved one by one, from the defaults, until none changes.
    Ties go to the lower order and to the value met first.

    Args:
        parts: Levels, the sequences [M, T] that they did not count, and their tasks [M]. Without
            any sequence the defaults stay.
        orders: Orders to choose from.
        grid: Strengths to choose from.
    """
    count = sum(len(tasks) for _, _, tasks in parts)
    if not count:
        return DEFAULT_ORDER if DEFAULT_ORDER in orders else max(orders), DEFAULT_STRENGTHS

    def likelihood(order: int, strengths: Strengths) -> float:
        smoothed = (replace(levels, order=order, strengths=strengths) for levels, _, _ in parts)
        held = zip(smoothed, parts, strict=True)
        return sum(float(levels.log_probability(*fold[1:]).sum()) for levels, fold in held) / count

    best, chosen = -np.inf, (DEFAULT_ORDER, DEFAULT_STRENGTHS)
    for order in sorted(orders):
        strengths, highest = DEFAULT_STRENGTHS, likelihood(order, DEFAULT_STRENGTHS)
        improved = True
        while improved:
            improved = False
            for level in range(order):
                for value in grid:
                    other: Any = (*strengths[:level], value, *strengths[level + 1 :])
                    if (reached := likelihood(order, other)) > highest:
                        strengths, highest, improved = other, reached, True
        if highest > best:
            best, chosen = highest, (order, strengths)
    return chosen


def check_counts(arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> None:
    """Refuse named arrays that hold other numbers than counts or strengths (ValueError)."""
    for name in names:
        array, kinds = arrays[name], "f" if name.endswith("strengths") else "i"
        if array.dtype.kind not in kinds or not ((array >= 0) & (array < np.inf)).all():
            raise ValueError(f"'{name}' holds other numbers than counts")


class NGramPrior:
    """Smoothed n-grams of actions for each task; make one by `fit`, `tuned` or `from_arrays`.

    Args:
        events: As of `Tally`.
        counts: As of `Tally`.
        actions: Allowed action ids, position = task id.
        action_count: Number K of actions.
        order: Actions that an n-gram spans, 1 to 3.
        strengths: s₁, s₂, s₃ of the formulas in `ngrams`; levels beyond the order are not used.

    Attributes:
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
        learned: NGramPrior | None = None,
    ) -> NGramPrior:
        """Count training windows [N, T] of tasks [N]: all steps to actions that the task allows.

        Args:
            sequences: Action ids of training windows [N, T], −1 after the last.
            tasks: Their tasks [N].
            action_count: K.
            actions: Actions that each task allows.
            order: Order of the n-grams, 1 to 3.
            strengths: Strengths of smoothing, of each order.
            learned: Prior over the first of these tasks and actions, whose counts are added.
        """
        horizon = sequences.shape[1]
        # events (task, a_t−2, a_t−1, a_t) of all steps, [N · T, 4]
        padded = np.pad(sequences, ((0, 0), (2, 0)), constant_values=START)
        rows = np.concatenate(
            [np.column_stack([tasks, padded[:, step : step + 3]]) for step in range(horizon)]
        )
        rows = rows[rows[:, 3] >= 0]
        number = np.ones(len(rows), dtype=np.int64)
        if learned is not None:
            rows = np.concatenate([rows, learned._events])
            number = np.concatenate([number, learned._counts])
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
        learned: NGramPrior | None = None,
    ) -> NGramPrior:
        """Count training windows, and choose order and strengths by validation windows.

        Validation windows [M, T'] have the highest likelihood under the chosen values
        (`chosen_smoothing`). Windows with an action that their task does not allow are ignored,
        since no setting gives them a probability; without any others the defaults stay.

        Args:
            sequences: Action ids of training windows [N, T].
            tasks: Their tasks [N].
            action_count: K.
            actions: Actions that each task allows.
            val_sequences: Action ids of validation windows [M, T'].
            val_tasks: Their tasks [M].
            orders: Orders to choose from.
            grid: Strengths to choose from.
            learned: Prior whose counts are added.
        """
        shared: dict[str, Any] = {
            "action_count": action_count,
            "actions": actions,
            "learned": learned,
        }
        fitted = cls.fit(sequences, tasks, order=max(orders), **shared)
        # of padded sequences whose task allows all actions
        allowed = fitted._allowed[val_tasks[:, None], val_sequences] | (val_sequences < 0)
        usable = allowed.all(axis=1)
        held = val_sequences[usable].astype(np.int64), val_tasks[usable].astype(np.int64)
        order, strengths = chosen_smoothing([(fitted.levels, *held)], orders=orders, grid=grid)
        return cls.fit(sequences, tasks, order=order, strengths=strengths, **shared)

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
        """Make a prior from the arrays of `to_arrays` (ValueError if they are not)."""
        check_counts(arrays, ("counts", "actions", "sizes", "settings", "strengths"))
        order, action_count = arrays["settings"].tolist()
        actions, events = arrays["actions"], arrays["events"]
        if (
            arrays["sizes"].sum() != len(actions)
            or (actions >= action_count).any()
            or events.shape != (len(arrays["counts"]), 4)
            or events.dtype.kind != "i"
            or ((events < START) | (events >= action_count))[:, 1:].any()
            or ((events[:, 0] < 0) | (events[:, 0] >= len(arrays["sizes"]))).any()
            or order not in (1, 2, 3)
            or len(arrays["strengths"]) != 3
        ):
            raise ValueError("arrays of n-grams do not fit each other")
        parts = np.split(arrays["actions"], np.cumsum(arrays["sizes"])[:-1])
        return cls(
            events=arrays["events"],
            counts=arrays["counts"],
            actions=[tuple(ids.tolist()) for ids in parts],
            action_count=action_count,
            order=order,
            strengths=arrays["strengths"].tolist(),
        )
