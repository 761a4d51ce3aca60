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
        return cost[tuple(sequences[:, step + 1 - cost.ndim + axis] for axis in range(cost.ndim))]

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
            order = min(step, 2)  # actions before this step that its best continuation depends on
            after = remaining[0]  # over the last min(step + 1, 2) actions, this step's among them
            total = _spread(self.table(step), order + 1) + _spread(after, order + 1)
            remaining.insert(0, np.broadcast_to(total, (self.size,) * (order + 1)).min(axis=-1))
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

        Args:
            count: Number of sequences.
            children: Returns which actions may follow prefixes.
            most: Number of prefixes of a length that are kept at most.
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


CHUNK = 1 << 21  # size of the largest intermediate array


class CostBatch:
    """Costs of B queries over the same A actions: c_b(a) = Σ_t own_bt(a_t) + shared(a)."""

    def __init__(self, own_costs: Reals, shared: StepCosts) -> None:
        self.own = own_costs  # [B, T, A]; an infinite cost forbids
        self.shared = shared
        self._cheapest: dict[int, list[Cheapest]] = {}  # by their number

    def row(self, index: int) -> StepCosts:
        """Return the costs of one query."""
        return _Row(self, index)

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """Whether no cost of a query is infinite [B]."""
        return np.asarray(np.isfinite(self.own).all(axis=(1, 2)) & self.shared.finite)

    def cheapest(self, count: int) -> list[Cheapest]:
        """Return the `count` cheapest sequences of each query, as by `StepCosts.cheapest`."""
        if count not in self._cheapest:
            query_entries = (
                self.shared.size ** min(self.shared.horizon, 3) + count * self.shared.size
            )
            rows = max(1, CHUNK // query_entries)
            self._cheapest[count] = [
                # some sequence attains each prefix's look-ahead: what was dropped is no cheaper
                Cheapest(sequences[:number], costs[:number], bound=float(bound), complete=True)
                for first in range(0, len(self.own), rows)
                for sequences, costs, bound in zip(
                    *self._lists(self.own[first : first + rows], count), strict=True
                )
                for number in [int(np.isfinite(costs).sum())]
            ]
        return self._cheapest[count]

    def _lists(self, own_costs: Reals, count: int) -> tuple[Ids, Reals, Reals]:
        """List the cheapest sequences of some queries [B, T, A] (k-best Viterbi).

        They are places [B, k, T] with their costs [B, k], infinite behind the last possible one,
        and a lower bound on the cost of all others [B], infinite if there are none.
        """
        batch, horizon, size = own_costs.shape
        ahead, queries = self._ahead(own_costs), np.arange(batch)[:, None]
        prefixes, costs = np.zeros((batch, 1, 0), dtype=np.int64), np.zeros((batch, 1))
        bound = np.full(batch, np.inf)
        for step in range(horizon):
            # costs of every action after every prefix, [B, n, A]
            flat = prefixes.reshape(prefixes.shape[0] * prefixes.shape[1], step)
            moves = self.shared.children(flat).reshape(batch, prefixes.shape[1], size)
            after = costs[:, :, None] + moves + own_costs[:, step, None]
            total = after
            if (best := ahead[step + 1]) is not None:
                total = after + (best[queries, prefixes[:, :, -1]] if best.shape[1] > 1 else best)
            width = after.shape[1] * size
            total, after = total.reshape(batch, width), after.reshape(batch, width)
            if width > count:
                kept, dropped = _lowest(total, count)
                bound = np.minimum(bound, dropped)
            else:
                kept = np.broadcast_to(np.arange(width), total.shape)
            if step == horizon - 1:  # cheapest first, ties in their order
                order = np.take_along_axis(total, kept, axis=1).argsort(axis=1, kind="stable")
                kept = np.take_along_axis(kept, order, axis=1)
            costs = np.take_along_axis(after, kept, axis=1)
            above = np.take_along_axis(prefixes, (kept // size)[:, :, None], axis=1)
            prefixes = np.concatenate([above, (kept % size)[:, :, None]], axis=2)
        return prefixes, costs, bound

    def _ahead(self, own_costs: Reals) -> list[Reals | None]:
        """Return the least cost of the steps after the first t, for t = 1..T; None for no cost.

        Each is [B, A, A], over the last two of the t actions, with a single row or column if it
        does not depend on an action.
        """
        horizon = own_costs.shape[1]
        ahead: list[Reals | None] = [None] * (horizon + 1)
        for step in range(horizon - 1, 0, -1):
            # own cost of an action a and least cost of what follows it and c before it, [B, c, a]
            here, after = own_costs[:, step, None], ahead[step + 1]
            here = here if after is None else here + after
            table = self.shared.table(step)
            if table.ndim == 3:  # min over a of [B, d, c, a]
                ahead[step] = (table + here[:, None]).min(axis=3)
            else:
                ahead[step] = (table + here).min(axis=2)[:, None]
        return ahead


class _Row(_Sum):
    """The costs of one query of a batch, whose cheapest sequences are found with the others'."""

    def __init__(self, batch: CostBatch, index: int) -> None:
        super().__init__(batch.shared, StepCosts(costs=tuple(batch.own[index])))
        self._batch, self._index = batch, index

    @property
    def finite(self) -> bool:
        return bool(self._batch.finite[self._index])

    def cheapest(
        self, count: int, children: Children | None = None, *, most: int = 1 << 17
    ) -> Cheapest:
        if children is not None:
            return super().cheapest(count, children, most=most)
        return self._batch.cheapest(count)[self._index]


def _lowest(values: Reals, count: int) -> tuple[Ids, Reals]:
    """Return the places of the lowest values of each row, ascending, and the lowest of the others.

    Of equal values the first ones are taken.
    """
    # values [B, M], M > count → [B, count], [B]
    parted = np.partition(values, (count - 1, count), axis=1)
    highest = parted[:, count - 1 : count]
    below, equal = values < highest, values == highest
    wanted = count - below.sum(axis=1, keepdims=True)
    kept = below | (equal & (equal.cumsum(axis=1) <= wanted))
    return kept.nonzero()[1].reshape(len(values), count), parted[:, count]
