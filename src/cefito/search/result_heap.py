"""What a walk over full sequences has met: the best of each query, and how many there were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.search.problem import Best, Plans, SearchCost, Watch, places
from cefito.search.space import Space

__all__ = ["Leaves"]


class Leaves:
    """Leaves met by a walk of some queries that allow the same actions.

    Args:
        spaces: The queries.
        top_k: How many of the best are kept of each.
        watch: Told of the leaves.
        sampled: Leaves to keep of each query at regular distances, whatever their score.

    Attributes:
        best: The best leaves of each query.
        samples: Those kept at regular distances.
        count: Leaves met of each query [Q].
    """

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
        self,
        energies: Tensor,
        query: NDArray[np.int64],
        rank: NDArray[np.int64],
        *,
        share: float = 1.0,
    ) -> None:
        """Take in leaves of distinct ranks; those of a query stand together.

        Args:
            energies: Their energies [n].
            query: Query of each [n], ascending.
            rank: Rank of each [n].
            share: Part of their work that was not yet told to the watch.
        """
        energies = energies.float().cpu()
        for one in np.unique(query):
            first, behind = np.searchsorted(query, [one, one + 1])
            space, part, ranks = self.spaces[one], energies[first:behind], rank[first:behind]
            scores = None if space.objective.pure else space.scores(part, self.sequences(ranks))
            self.best[one].add(part, torch.from_numpy(ranks), scores)
            if self._stride:
                chosen = torch.from_numpy(np.flatnonzero(ranks % self._stride == 0))
                self.samples[one].add(
                    part[chosen],
                    torch.from_numpy(ranks)[chosen],
                    None if scores is None else scores[chosen],
                )
            self.count[one] += behind - first
            self.advance(behind - first, share)

    def advance(self, leaves: int, share: float) -> None:
        """Tell the watch that a share of the work on some leaves is done."""
        self.watch.advance(share * leaves / self.size**self.horizon)

    def sequences(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sequences of places [n, T] of ranks [n]."""
        return places(ranks, self.size, self.horizon)

    def finish(self) -> None:
        """Tell the watch of what constraints saved."""
        saved = len(self.spaces) - float(self.count.sum()) / self.size**self.horizon
        self.watch.advance(saved)

    def plans(self, tokens: NDArray[np.int64], *, exact: bool) -> list[Plans]:
        """The plans of each query, given the token forwards [Q] that it cost."""
        return [
            best.plans(space.problem, self.horizon, SearchCost(int(spent), int(count)), exact=exact)
            for best, space, spent, count in zip(
                self.best, self.spaces, tokens, self.count, strict=True
            )
        ]
