"""Costs of sequences that add up along a chain, and the exact k cheapest sequences under them.

A prior over sequences and the logits of single steps both have this form, so that they can be
summed, pruned and searched in the same way. Sums and multiples keep what they are made of and are
worked out step by step, so that many queries can share the large tables of their task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError

__all__ = ["Cheapest", "StepCosts"]

Children = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Cheapest:
    """The cheapest sequences found.

    Attributes:
        sequences: Places of actions in the set of allowed ones [k, T], cheapest first, ties in
            their order.
        costs: Their costs [k].
        bound: No other sequence costs less than this; infinite where there is no other.
        complete: Whether the list provably holds the k cheapest sequences.
    """

    sequences: NDArray[np.int64]
    costs: NDArray[np.float64]
    bound: float
    complete: bool


class StepCosts:
    """Costs over sequences of T of A allowed actions.

    Args:
        costs: For each step the cost of its action given those before it; one axis of size A for
            each of the last actions, the step's own action on the last axis: [A], then [A, A], then
            at most [A, A, A]. An infinite cost forbids.

    Raises:
        ConfigError: A table of another shape.
    """

    def __init__(self, *, costs: tuple[NDArray[np.float64], ...]) -> None:
        self._costs = costs
        for step, cost in enumerate(costs):
            if not 1 <= cost.ndim <= min(step + 1, 3) or set(cost.shape) != {self.size}:
                raise ConfigError(
                    f"chain: costs of step {step + 1} have shape {list(cost.shape)}; expected one "
                    f"to {min(step + 1, 3)} axes of {self.size}."
                )

    @classmethod
    def free(cls, horizon: int, size: int) -> StepCosts:
        """No sequence costs anything."""
        return cls(costs=tuple(np.zeros(size) for _ in range(horizon)))

    def __repr__(self) -> str:
        return f"Chain({self.horizon} steps, {self.size} actions)"

    @property
    def costs(self) -> tuple[NDArray[np.float64], ...]:
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

    @property
    def finite(self) -> bool:
        """Whether no cost is infinite."""
        return self._finite

    @cached_property
    def _finite(self) -> bool:
        return all(bool(np.isfinite(table).all()) for table in self._costs)

    def __add__(self, other: StepCosts) -> StepCosts:
        return _Sum(self, other)

    def __mul__(self, factor: float) -> StepCosts:
        """All costs times a factor; what is forbidden stays forbidden."""
        return _Multiple(self, factor)

    def table(self, step: int) -> NDArray[np.float64]:
        """The table of one step."""
        return self._costs[step]

    def tables(self) -> Iterator[NDArray[np.float64]]:
        """The tables of all steps, one after the other."""
        return (self.table(step) for step in range(self.horizon))

    def step(self, step: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Costs of one step's actions [n], given sequences of at least step + 1 actions [n, …]."""
        cost = self._costs[step]
        result: NDArray[np.float64] = cost[
            tuple(sequences[:, step + 1 - cost.ndim + axis] for axis in range(cost.ndim))
        ]
        return result

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Costs of every action after prefixes [n, t] with t < T, as [n, A]."""
        step = prefixes.shape[1]
        cost = self._costs[step]
        above = tuple(prefixes[:, step + 1 - cost.ndim + axis] for axis in range(cost.ndim - 1))
        return cost[above] if above else np.broadcast_to(cost, (len(prefixes), self.size))

    def cost(self, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Costs of full sequences [n, T]."""
        return np.asarray(sum(self.step(step, sequences) for step in range(self.horizon)))

    def to_go(self) -> list[NDArray[np.float64]]:
        """The least cost of all that follows, for each number t of actions done, 0..T.

        Each is a table over the last min(t, 2) of these actions.
        """
        remaining = [np.zeros((self.size,) * min(self.horizon, 2))]
        for step in range(self.horizon - 1, -1, -1):
            known = min(step, 2)  # actions before this step that its best continuation depends on
            after = remaining[0]  # given the last min(step + 1, 2) actions, this step's among them
            total = _spread(self.table(step), known + 1) + _spread(after, known + 1)
            remaining.insert(0, np.broadcast_to(total, (self.size,) * (known + 1)).min(axis=-1))
        return remaining

    def completions(
        self, prefixes: NDArray[np.int64], children: Children | None = None
    ) -> NDArray[np.int64]:
        """A cheap full sequence for each prefix; the cheapest, unless `children` forbids it.

        Args:
            prefixes: Prefixes [n, t].
            children: Which actions may follow prefixes [n, t], as [n, A]; at least one after each.

        Returns:
            Full sequences [n, T].
        """
        remaining = self.to_go()
        while prefixes.shape[1] < self.horizon:
            after = self.children(prefixes) + _ahead(remaining[prefixes.shape[1] + 1], prefixes)
            if children is not None:
                after = np.where(children(prefixes), after, np.inf)
            prefixes = np.concatenate([prefixes, after.argmin(axis=1)[:, None]], axis=1)
        return prefixes

    def cheapest(
        self, count: int, children: Children | None = None, *, most: int = 1 << 17
    ) -> Cheapest:
        """The `count` cheapest sequences.

        Prefixes are kept by their cost plus the least cost of what can follow. Without `children`
        that sum is attained by some sequence, so that no more than `count` prefixes of a length can
        belong to the cheapest, and keeping `count` is exact. With it the sum is a lower bound only;
        more are kept, up to `most`, until none that was dropped can matter.

        Args:
            count: How many; fewer are returned where there are not so many.
            children: Which actions may follow prefixes [n, t], as [n, A].
            most: Prefixes kept at most.
        """
        remaining = self.to_go()
        width = count
        while True:
            cheapest = self._kept(count, width, remaining, children)
            if cheapest.complete or width >= most:
                return cheapest
            width = min(4 * width, most)

    def _kept(
        self,
        count: int,
        width: int,
        remaining: Sequence[NDArray[np.float64]],
        children: Children | None,
    ) -> Cheapest:
        prefixes, costs = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
        bound = np.inf
        for step in range(self.horizon):
            after = costs[:, None] + self.children(prefixes)
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
                order = np.sort(order)  # by action ids, so that later ties fall in their order
            prefixes = np.concatenate(
                [prefixes[order // self.size], (order % self.size)[:, None]], axis=1
            )
            costs = after.ravel()[order]
        complete = bound == np.inf or (len(costs) == count and costs[-1] <= bound)
        return Cheapest(sequences=prefixes, costs=costs, bound=bound, complete=complete)


class _Sum(StepCosts):
    """The sum of two chains."""

    def __init__(self, left: StepCosts, right: StepCosts) -> None:
        if (left.horizon, left.size) != (right.horizon, right.size):
            raise ConfigError(
                f"chain: costs of {left.horizon} steps and {left.size} actions cannot be added to "
                f"those of {right.horizon} steps and {right.size} actions."
            )
        self._left, self._right = left, right

    @property
    def horizon(self) -> int:
        return self._left.horizon

    @property
    def size(self) -> int:
        return self._left.size

    @property
    def finite(self) -> bool:
        return self._left.finite and self._right.finite

    def table(self, step: int) -> NDArray[np.float64]:
        return _added(self._left.table(step), self._right.table(step))

    def step(self, step: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._left.step(step, sequences) + self._right.step(step, sequences)

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._left.children(prefixes) + self._right.children(prefixes)


class _Multiple(StepCosts):
    """A chain times a number; what is forbidden stays so."""

    def __init__(self, chain: StepCosts, factor: float) -> None:
        self._chain, self._factor = chain, factor

    @property
    def horizon(self) -> int:
        return self._chain.horizon

    @property
    def size(self) -> int:
        return self._chain.size

    @property
    def finite(self) -> bool:
        return self._chain.finite

    def table(self, step: int) -> NDArray[np.float64]:
        return self._times(self._chain.table(step))

    def step(self, step: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._times(self._chain.step(step, sequences))

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._times(self._chain.children(prefixes))

    def _times(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._chain.finite:
            return self._factor * costs
        infinite = np.isinf(costs)
        return np.where(infinite, costs, self._factor * np.where(infinite, 0.0, costs))


def _spread(cost: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Put further axes before those of a cost table."""
    return cost.reshape((1,) * (axes - cost.ndim) + cost.shape)


def _added(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    axes = max(left.ndim, right.ndim)
    return _spread(left, axes) + _spread(right, axes)


def _ahead(remaining: NDArray[np.float64], prefixes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Least cost of what follows every action after prefixes [n, t], as [n, A] or [A]."""
    return np.asarray(remaining[prefixes[:, -1]]) if remaining.ndim == 2 else remaining
