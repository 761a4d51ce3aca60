"""The k sequences of least cost, for objectives in which the energy has no weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cefito.search.base import MemorySettings, Search, SpaceSize, Watch
from cefito.search.energies import Searchable, components_of
from cefito.search.problem import Best, Plans, SearchCost, ranks
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Problems, Space, compiled
from cefito.search.step_costs import StepCosts

__all__ = ["KBestSearch"]

_TOGETHER = 32  # queries whose energies are computed together


class KBestSearch(MemorySettings, Search):
    """Lists the `top_k` allowed sequences of least cost, and their energies; exact if complete."""

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the cost of `top_k` sequences that share nothing."""
        leaves = min(size.leaves, top_k)
        return SearchCost(len(components_of(field)) * size.tokens_apart(leaves), leaves)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` sequences of least cost of each problem."""
        spaces = compiled(problems, field.horizon, top_k)
        plans: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            batch = spaces[first : first + _TOGETHER]
            if watch.stop():
                plans += [
                    Best(1).plans(space.problem, space.horizon, SearchCost(0, 0), exact=False)
                    for space in batch
                ]
                continue
            plans += self._listed(field, batch, top_k)
            watch.advance(len(batch))
        return plans

    def _listed(self, field: Searchable, spaces: Sequence[Space], top_k: int) -> list[Plans]:
        evaluate = SequenceEnergies(field, spaces, self.memory_mib)
        found = [
            space.cheapest(
                space.objective.costs or StepCosts.free(space.horizon, space.size), top_k
            )
            for space in spaces
        ]
        sizes = [len(cheapest.costs) for cheapest in found]
        query = np.repeat(np.arange(len(spaces)), sizes)
        energies = evaluate(query, np.concatenate([cheapest.sequences for cheapest in found]))
        plans = []
        for index, (space, cheapest, part) in enumerate(
            zip(spaces, found, np.split(energies, np.cumsum(sizes)[:-1]), strict=True)
        ):
            best = Best(top_k)
            rank = ranks(cheapest.sequences, space.size)
            best.add(part, rank, cheapest.costs + space.objective.offset)
            cost = SearchCost(int(evaluate.tokens[index]), int(evaluate.leaves[index]))
            plans.append(best.plans(space.problem, space.horizon, cost, exact=cheapest.complete))
        return plans
