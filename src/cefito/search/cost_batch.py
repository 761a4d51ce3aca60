"""Costs of many queries over the same actions, whose cheapest sequences are found together.

The queries of a task share the tables over pairs and triples of actions; only costs of single
actions are a query's own. The steps of the search for the cheapest sequences are then few array
operations for all queries.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cefito.search.step_costs import Cheapest, Children, StepCosts

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]

_CHUNK = 1 << 21  # size of the largest intermediate array


class CostBatch:
    """Costs of B queries over the same A actions: c_b(a) = Σ_t own_bt(a_t) + shared(a)."""

    def __init__(self, own: Reals, shared: StepCosts) -> None:
        self.own = own  # [B, T, A]; an infinite cost forbids
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
            each = self.shared.size ** min(self.shared.horizon, 3) + count * self.shared.size
            rows = max(1, _CHUNK // each)
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

    def _lists(self, own: Reals, count: int) -> tuple[Ids, Reals, Reals]:
        """List the cheapest sequences of some queries [B, T, A] (k-best Viterbi).

        They are places [B, k, T] with their costs [B, k], infinite behind the last possible one,
        and a lower bound on the cost of all others [B], infinite if there are none.
        """
        batch, horizon, size = own.shape
        ahead, queries = self._ahead(own), np.arange(batch)[:, None]
        prefixes, costs = np.zeros((batch, 1, 0), dtype=np.int64), np.zeros((batch, 1))
        bound = np.full(batch, np.inf)
        for step in range(horizon):
            # costs of every action after every prefix, [B, n, A]
            flat = prefixes.reshape(prefixes.shape[0] * prefixes.shape[1], step)
            moves = self.shared.children(flat).reshape(batch, prefixes.shape[1], size)
            after = costs[:, :, None] + moves + own[:, step, None]
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

    def _ahead(self, own: Reals) -> list[Reals | None]:
        """Return the least cost of the steps after the first t, for t = 1..T; None for no cost.

        Each is [B, A, A], over the last two of the t actions, with a single row or column if it
        does not depend on an action.
        """
        horizon = own.shape[1]
        ahead: list[Reals | None] = [None] * (horizon + 1)
        for step in range(horizon - 1, 0, -1):
            # own cost of an action a and least cost of what follows it and c before it, [B, c, a]
            here, after = own[:, step, None], ahead[step + 1]
            here = here if after is None else here + after
            table = self.shared.table(step)
            if table.ndim == 3:  # min over a of [B, d, c, a]
                ahead[step] = (table + here[:, None]).min(axis=3)
            else:
                ahead[step] = (table + here).min(axis=2)[:, None]
        return ahead


class _Row(StepCosts):
    """The costs of one query of a batch."""

    def __init__(self, batch: CostBatch, index: int) -> None:
        self._batch, self._index, self._shared = batch, index, batch.shared
        self._own: Reals = batch.own[index]  # [T, A]

    @property
    def horizon(self) -> int:
        return self._shared.horizon

    @property
    def size(self) -> int:
        return self._shared.size

    @property
    def finite(self) -> bool:
        return bool(self._batch.finite[self._index])

    def table(self, step: int) -> Reals:
        return np.asarray(self._shared.table(step) + self._own[step])

    def step(self, step: int, sequences: Ids) -> Reals:
        return np.asarray(self._shared.step(step, sequences) + self._own[step][sequences[:, step]])

    def children(self, prefixes: Ids) -> Reals:
        return np.asarray(self._shared.children(prefixes) + self._own[prefixes.shape[1]])

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
