"""The reference search: every candidate evaluated by itself, as in the paper (Sec. 3.3)."""

from __future__ import annotations

import numpy as np

from cefito.search.base import Search, SpaceSize, Watch
from cefito.search.energies import Searchable, components_of, to_device
from cefito.search.problem import Best, Plans, SearchCost, places
from cefito.search.space import Problems, Space, compiled

__all__ = ["NaiveSearch"]


class NaiveSearch(Search):
    """Enumeration of the allowed part of A^T by full forwards of batches of candidates."""

    batch: int = 4096  # candidates a forward

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:  # noqa: ARG002
        """Return the cost of all sequences, 2T + 1 tokens each."""
        return _cost(field, size.leaves)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` sequences of lowest score of each problem."""
        return [
            self._solve(field, space, top_k, watch)
            for space in compiled(problems, field.horizon, top_k)
        ]

    def _solve(self, field: Searchable, space: Space, top_k: int, watch: Watch) -> Plans:
        problem, horizon = space.problem, field.horizon
        initial, goal = (to_device(end, field.device) for end in (problem.initial, problem.goal))
        allowed = np.asarray(problem.actions)
        total, leaves, best = space.size**horizon, 0, Best(top_k)
        for first in range(0, total, self.batch):
            if leaves and watch.stop():
                break
            ranks = np.arange(first, min(first + self.batch, total))
            sequences = places(ranks, space.size, horizon)  # [n, T]
            if not space.free:
                kept = space.allows(sequences)
                sequences, ranks = sequences[kept], ranks[kept]
            energies = field.energy(
                initial.expand(len(ranks), -1),
                goal.expand(len(ranks), -1),
                to_device(allowed[sequences], field.device),
            )
            values = energies.float().cpu().numpy()
            best.add(values, ranks, space.scores(values, sequences))
            leaves += len(ranks)
            watch.advance(min(self.batch, total - first) / total)
        else:
            first = total
        return best.plans(problem, horizon, _cost(field, leaves), exact=first == total)


def _cost(field: Searchable, leaves: int) -> SearchCost:
    tokens = len(components_of(field)) * (2 * field.horizon + 1)
    return SearchCost(token_forwards=leaves * tokens, leaves=leaves)
