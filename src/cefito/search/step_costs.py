"""Costs of sequences that add up over steps, and the exact k cheapest sequences under them.

Sums keep references to their operands and are evaluated step by step, so that many queries can
share the large tables of their task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Children = Callable[[Ids], NDArray[np.bool_]]


@dataclass(frozen=True)
class Cheapest:
    """The cheapest sequences found."""

    # places of actions in the set of allowed ones [k, T], cheapest first, ties in their order
    sequences: Ids
    costs: Reals  # their costs [k]
    bound: float  # lower bound on the cost of all other sequences; infinite if there are no others
    complete: bool  # whether the list provably holds the k cheapest sequences


class StepCosts:
    """Costs of sequences of T of A allowed actions: c(a) = Σ_t c_t(a_t−2, a_t−1, a_t).

    For each step, `costs` has the table of its action's cost given the actions before it; the last
    axis is the step's own action: [A], then [A, A], then at most [A, A, A]. An infinite cost
    forbids.

    Raises:
        ConfigError: A table of another shape.
    """

    def __init__(self, *, costs: tuple[Reals, ...]) -> None:
        self._costs = costs
        for step, cost in enumerate(costs):
            if not 1 <= cost.ndim <= min(step + 1, 3) or set(cost.shape) != {self.size}:
                raise ConfigError(
                    f"costs of step {step + 1} have shape {list(cost.shape)}; expected one "
                    f"to {min(step + 1, 3)} axes of {self.size}."
                )

    @classmethod
    def free(cls, horizon: int, size: int) -> StepCosts:
        """Return costs of zero."""
        return cls(costs=tuple(np.zeros(size) for _ in range(horizon)))

    def __repr__(self) -> str:
        return f"StepCosts({self.horizon} steps, {self.size} actions)"

    @property
    def costs(self) -> tuple[Reals, ...]:
        """The tables of all steps."""
        return tuple(self.tables())

    @property
    def horizon(self) -> int:
        """T."""
        return len(self._costs)

    @property
    def size(self) -> int:
        """A, the number of allowed actions."""
        return len(self._costs[0])

    @cached_property
    def finite(self) -> bool:
        """Whether no cost is infinite."""
        return all(bool(np.isfinite(table).all()) for table in self.tables())

    def __add__(self, other: StepCosts) -> StepCosts:
        return _Sum(self, other)

    def table(self, step: int) -> Reals:
        """Return the table of one step."""
        return self._costs[step]

    def tables(self) -> Iterator[Reals]:
        """Yield the tables of all steps."""
        return (self.table(step) for step in range(self.horizon))

    def step(self, step: int, sequences: Ids) -> Reals:
        """Return the costs of one step [n] of sequences of at least step + 1 actions [n, …]."""
        cost = self._costs[step]
        result: Reals = cost[
            tuple(sequences[:, step + 1 - cost.ndim + axis] for axis in range(cost.ndim))
        ]
        return result

    def children(self, prefixes: Ids) -> Reals:
        """Return the costs of every action after prefixes [n, t] with t < T, as [n, A]."""
        step = prefixes.shape[1]
        cost = self._costs[step]
        above = tuple(prefixes[:, step + 1 - cost.ndim + axis] for axis in range(cost.ndim - 1))
        return cost[above] if above else np.broadcast_to(cost, (len(prefixes), self.size))

    def cost(self, sequences: Ids) -> Reals:
        """Return the costs [n] of full sequences [n, T]."""
        return np.asarray(sum(self.step(step, sequences) for step in range(self.horizon)))

    def to_go(self) -> list[Reals]:
        """Return the least cost of the steps after t, for t = 0..T (backward Viterbi recursion).

        h_t(a_t−1, a_t) = min_b [c_t+1(a_t−1, a_t, b) + h_t+1(a_t, b)], h_T = 0. Each is a table
        over the last min(t, 2) actions.
        """
        remaining = [np.zeros((self.size,) * min(self.horizon, 2))]
        for step in range(self.horizon - 1, -1, -1):
            known = min(step, 2)  # actions before this step that its best continuation depends on
            after = remaining[0]  # over the last min(step + 1, 2) actions, this step's among them
            total = _spread(self.table(step), known + 1) + _spread(after, known + 1)
            remaining.insert(0, np.broadcast_to(total, (self.size,) * (known + 1)).min(axis=-1))
        return remaining

    def cheapest(
        self, count: int, children: Children | None = None, *, most: int = 1 << 17
    ) -> Cheapest:
        """Return the `count` cheapest sequences (k-best Viterbi with an exact look-ahead), or all.

        Prefixes are ranked by their cost plus the least cost of what can follow. Without `children`
        (the actions that may follow prefixes) some sequence attains that sum, so that at most
        `count` prefixes of a length can belong to the cheapest sequences, and keeping `count` is
        exact. With `children` the sum is a lower bound only; more are kept, up to `most`, until
        none that was dropped can matter.
        """
        remaining = self.to_go()
        width = count
        while True:
            cheapest = self._kept(count, width, remaining, children)
            if cheapest.complete or width >= most:
                return cheapest
            width = min(4 * width, most)

    def _kept(
        self, count: int, width: int, remaining: Sequence[Reals], children: Children | None
    ) -> Cheapest:
        prefixes, costs = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
        bound = np.inf
        for step in range(self.horizon):
            after = costs[:, None] + self.children(prefixes)  # [n, A]
            if children is not None:
                after = np.where(children(prefixes), after, np.inf)
            total = (after + _ahead(remaining[step + 1], prefixes)).ravel()
            possible = np.flatnonzero(np.isfinite(total))
            keep = count if step == self.horizon - 1 else width
            order = possible[total[possible].argsort(kind="stable")]
            if len(order) > keep:
                bound = min(bound, float(total[order[keep]]))
            order = order[:keep]
            if step < self.horizon - 1:
                order = np.sort(order)  # by action ids, so that later ties keep their order
            prefixes = np.concatenate(
                [prefixes[order // self.size], (order % self.size)[:, None]], axis=1
            )
            costs = after.ravel()[order]
        complete = bound == np.inf or (len(costs) == count and costs[-1] <= bound)
        return Cheapest(sequences=prefixes, costs=costs, bound=bound, complete=complete)


class _Sum(StepCosts):
    """The sum of two costs."""

    def __init__(self, left: StepCosts, right: StepCosts) -> None:
        if (left.horizon, left.size) != (right.horizon, right.size):
            raise ConfigError(
                f"costs of {left.horizon} steps and {left.size} actions cannot be added to costs "
                f"of {right.horizon} steps and {right.size} actions."
            )
        self._left, self._right = left, right

    @property
    def horizon(self) -> int:
        return self._left.horizon

    @property
    def size(self) -> int:
        return self._left.size

    @cached_property
    def finite(self) -> bool:
        return self._left.finite and self._right.finite

    def table(self, step: int) -> Reals:
        left, right = self._left.table(step), self._right.table(step)
        axes = max(left.ndim, right.ndim)
        return _spread(left, axes) + _spread(right, axes)

    def step(self, step: int, sequences: Ids) -> Reals:
        return self._left.step(step, sequences) + self._right.step(step, sequences)

    def children(self, prefixes: Ids) -> Reals:
        return self._left.children(prefixes) + self._right.children(prefixes)


def _spread(cost: Reals, axes: int) -> Reals:
    """Insert axes of size 1 before the axes of a cost table."""
    return cost.reshape((1,) * (axes - cost.ndim) + cost.shape)


def _ahead(remaining: Reals, prefixes: Ids) -> Reals:
    """Return the least cost after every action that follows prefixes [n, t], as [n, A] or [A]."""
    return np.asarray(remaining[prefixes[:, -1]]) if remaining.ndim == 2 else remaining
