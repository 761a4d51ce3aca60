"""The reference of exact searches: every allowed sequence evaluated by itself."""

import numpy as np

from cefito.search.base import Searchable, observations, to_device
from cefito.search.problem import Best, Plans, Problems, SearchCost, compiled, places


def naive_search(field: Searchable, problems: Problems, top_k: int) -> list[Plans]:
    found = []
    for space in compiled(problems, field.horizon, top_k):
        ranks, best = np.arange(space.size**field.horizon), Best(top_k)
        sequences = places(ranks, space.size, field.horizon)
        allowed = space.allows(sequences)
        ranks, sequences = ranks[allowed], sequences[allowed]
        initial, goal = (end.expand(len(ranks), -1) for end in observations([space], field.device))
        actions = to_device(np.asarray(space.problem.actions)[sequences], field.device)
        energies = field.energy(initial, goal, actions).float().cpu().numpy()
        best.add(energies, ranks, space.scores(energies, sequences))
        cost = SearchCost(token_forwards=0, leaves=len(ranks))
        found.append(best.plans(space.problem, field.horizon, cost, exact=True))
    return found
