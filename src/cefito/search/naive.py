"""The reference: every candidate evaluated by itself, as the paper does (Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cefito.arrays import aligned
from cefito.search.problem import Best, Field, Plans, Problem, SearchCost, Watch, places
from cefito.search.space import Space, compiled

__all__ = ["NaiveSearch"]


class NaiveSearch:
    """Enumeration of the allowed part of A^T by full forwards of batches of candidates.

    Args:
        batch: Candidates a forward.
    """

    def __init__(self, *, batch: int = 4096) -> None:
        self.batch = batch

    def search(
        self, field: Field, problems: Sequence[Problem | Space], top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """The `top_k` sequences of lowest score of each problem.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        return [
            self._solve(field, space, top_k, watch)
            for space in compiled(problems, field.horizon, top_k)
        ]

    def _solve(self, field: Field, space: Space, top_k: int, watch: Watch) -> Plans:
        problem, horizon = space.problem, field.horizon
        initial = torch.from_numpy(aligned(problem.initial)).to(field.device)
        goal = torch.from_numpy(aligned(problem.goal)).to(field.device)
        allowed = np.asarray(problem.actions)
        total, leaves, best = space.size**horizon, 0, Best(top_k)
        for first in range(0, total, self.batch):
            if leaves and watch.stop():
                break
            ranks = np.arange(first, min(first + self.batch, total))
            sequences = places(ranks, space.size, horizon)
            if not space.free:
                kept = space.allows(sequences)
                sequences, ranks = sequences[kept], ranks[kept]
            actions = torch.from_numpy(allowed[sequences]).to(field.device)
            energies = field.energy(
                initial.expand(len(ranks), -1), goal.expand(len(ranks), -1), actions
            ).cpu()
            best.add(energies, torch.from_numpy(ranks), space.scores(energies, sequences))
            leaves += len(ranks)
            watch.advance(min(self.batch, total - first) / total)
        else:
            first = total
        effort = SearchCost(token_forwards=leaves * (2 * horizon + 1), leaves=leaves)
        return best.plans(problem, horizon, effort, exact=first == total)
