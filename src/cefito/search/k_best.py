"""The cheapest sequences under a chain, for objectives in which the energy weighs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cefito.search.component import Searchable
from cefito.search.problem import Best, Plans, Problem, SearchCost, Watch
from cefito.search.problem import ranks as ranks_of
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled
from cefito.search.step_costs import StepCosts

__all__ = ["KBestSearch"]

_TOGETHER = 32  # queries whose energies are computed together


class KBestSearch:
    """Lists the sequences of least cost besides the energy; energies are only looked up.

    Args:
        memory_mib: Bound on the memory of the prefixes computed at once, in MiB.
    """

    def __init__(self, *, memory_mib: float = 1024) -> None:
        self.memory_mib = memory_mib

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """The `top_k` allowed sequences of each problem that its objective's chain costs least.

        Exact where the chain's list is complete, which it may fail to be under constraints alone.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)
        plans: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            batch = spaces[first : first + _TOGETHER]
            if watch.stop():
                plans += [_nothing(space) for space in batch]
                continue
            plans += _listed(field, batch, top_k, self.memory_mib)
            watch.advance(len(batch))
        return plans


def _nothing(space: Space) -> Plans:
    return Best(1).plans(space.problem, space.horizon, SearchCost(0, 0), exact=False)


def _listed(
    field: Searchable, spaces: Sequence[Space], top_k: int, memory_mib: float
) -> list[Plans]:
    evaluate = SequenceEnergies(field, spaces, memory_mib)
    costs = [space.objective.chain or StepCosts.free(space.horizon, space.size) for space in spaces]
    found = [space.cheapest(cost, top_k) for space, cost in zip(spaces, costs, strict=True)]
    sizes = [len(cheapest.costs) for cheapest in found]
    query = np.repeat(np.arange(len(spaces)), sizes)
    energies = evaluate(query, np.concatenate([cheapest.sequences for cheapest in found]))
    plans = []
    for index, (space, cheapest, part) in enumerate(
        zip(spaces, found, np.split(energies, np.cumsum(sizes)[:-1]), strict=True)
    ):
        best = Best(top_k)
        best.add(
            torch.from_numpy(part),
            torch.from_numpy(ranks_of(cheapest.sequences, space.size)),
            torch.from_numpy(cheapest.costs + space.objective.offset),
        )
        effort = SearchCost(int(evaluate.tokens[index]), int(evaluate.leaves[index]))
        plans.append(best.plans(space.problem, space.horizon, effort, exact=cheapest.complete))
    return plans
