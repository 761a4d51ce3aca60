"""The best leaves of each query that a walk over full sequences met, and their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import Watch
from cefito.search.problem import Best, Plans, SearchCost, places
from cefito.search.space import Space

__all__ = ["ResultHeap"]

Ids = NDArray[np.int64]


class ResultHeap:
    """Leaves met by a walk of some queries that allow the same actions."""

    # samples: leaves kept at regular distances, whatever their score; count: leaves met [Q]

    def __init__(
        self, spaces: Sequence[Space], top_k: int, watch: Watch, *, sampled: int = 0
    ) -> None:
        self.spaces, self.watch = spaces, watch
        self.size, self.horizon = spaces[0].size, spaces[0].horizon
        self.best = [Best(top_k) for _ in spaces]
        self.samples = [Best(2 * sampled + 1) for _ in spaces]
        self.count = np.zeros(len(spaces), dtype=np.int64)
        self._stride = max(1, self.size**self.horizon // sampled) if sampled else 0

    def add(
        self, energies: NDArray[np.float32], query: Ids, rank: Ids, *, share: float = 1.0
    ) -> None:
        """Add leaves of distinct ranks; those of a query are adjacent."""
        # energies, queries ascending and ranks, each [n]; share of their work not reported yet
        for one in np.unique(query):
            first, behind = np.searchsorted(query, [one, one + 1])
            space, part, ranks = self.spaces[one], energies[first:behind], rank[first:behind]
            scores = None if space.objective.pure else space.scores(part, self.sequences(ranks))
            self.best[one].add(part, ranks, scores)
            if self._stride:
                chosen = ranks % self._stride == 0
                sampled = None if scores is None else scores[chosen]
                self.samples[one].add(part[chosen], ranks[chosen], sampled)
            self.count[one] += behind - first
            self.advance(behind - first, share)

    def advance(self, leaves: int, share: float) -> None:
        """Report a share of the work on some leaves as done."""
        self.watch.advance(share * leaves / self.size**self.horizon)

    def sequences(self, ranks: Ids) -> Ids:
        """Return the sequences of places [n, T] of ranks [n]."""
        return places(ranks, self.size, self.horizon)

    def finish(self) -> None:
        """Report the leaves that constraints saved as done."""
        saved = len(self.spaces) - float(self.count.sum()) / self.size**self.horizon
        self.watch.advance(saved)

    def plans(self, tokens: Ids, *, exact: bool) -> list[Plans]:
        """Return the plans of each query, given the token forwards [Q] that it cost."""
        return [
            best.plans(space.problem, self.horizon, SearchCost(int(spent), int(count)), exact=exact)
            for best, space, spent, count in zip(
                self.best, self.spaces, tokens, self.count, strict=True
            )
        ]
