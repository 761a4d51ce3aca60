"""What the search of a query may cost at most, summed over the tasks that are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cefito.planners.cefito.posterior import COMPARED
from cefito.search.constraints import Constraints
from cefito.search.cost_bound import choices
from cefito.search.cost_bound import most_operations as of_problem
from cefito.search.problem import Search

if TYPE_CHECKING:
    from cefito.planners.base import Queries
    from cefito.planners.cefito.planner import CefitoPlanner

__all__ = ["most_operations"]

_SMALL = 1e9
"""Operations below which it is not worth asking which tasks a query belongs to."""


def most_operations(
    planner: CefitoPlanner,
    search: Search,
    queries: Queries,
    top_k: int,
    constraints: Constraints,
) -> NDArray[np.float64]:
    """Most floating-point operations that the search of each query may take [N].

    Args:
        planner: The planner.
        search: What it searches with.
        queries: Queries of its dimension.
        top_k: Plans wanted.
        constraints: What every plan must satisfy.
    """
    wanted = max(top_k, COMPARED) if planner.probable else top_k
    known: dict[tuple[int, ...], float] = {}  # many tasks have as many actions
    of_task = np.zeros(len(planner.space.actions))
    for task, actions in enumerate(planner.space.actions):
        steps = tuple(choices(actions, planner.horizon, constraints))
        if steps not in known:
            known[steps] = of_problem(search, planner.incremental, steps, wanted)
        of_task[task] = known[steps]
    if queries.tasks is not None:
        return of_task[queries.tasks]
    most = np.sort(of_task)[::-1][: planner.tasks].sum()
    total = np.full(len(queries), most)
    if most > _SMALL:
        total[:] = 0
        for one in planner.hypotheses.of(queries, planner.tasks):
            total[one.query] += of_task[one.task]
    return total
