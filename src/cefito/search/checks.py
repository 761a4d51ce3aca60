"""Demands on plans of other packages: what the contracts of searches and planners say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.plugins import array, demand, shares
from cefito.search.constraints import Constraints
from cefito.search.feasible import Feasible
from cefito.search.problem import Plans, SearchCost

__all__ = ["demand_plans"]

_NEAR = 1e-3  # by which sums of probabilities in single precision may exceed one


def demand_plans(
    found: Any,
    top_k: int,
    *,
    horizon: int,
    constraints: Sequence[Constraints],
    actions: float = np.inf,
    tasks: float = np.inf,
    shorter: bool = False,
    probable: bool = False,
) -> None:
    """Demand plans of some queries as they should be.

    Args:
        found: A list of plans, one for each query.
        top_k: Largest number of plans of a query.
        horizon: Number of actions of a plan.
        constraints: Of each query.
        actions: Number of actions, infinity if it is not known.
        tasks: Number of tasks, the same.
        shorter: Whether plans may be shorter.
        probable: Whether they have probabilities.
    """
    right = isinstance(found, Sequence) and all(isinstance(one, Plans) for one in found)
    demand(right and len(found) == len(constraints), f"no list of {len(constraints)} Plans")
    for plans in found:
        _demand_shapes(plans, top_k, horizon, shorter, probable)
    counts = [len(plans) for plans in found]
    if not sum(counts):
        return
    # all M plans together, of T steps
    query = np.repeat(np.arange(len(found)), counts)  # [M]
    rows = np.full((len(query), horizon), -1, dtype=np.int64)  # [M, T]
    for place, plans in zip(np.cumsum(counts) - counts, found, strict=True):
        rows[place : place + len(plans), : plans.actions.shape[1]] = plans.actions
    ended, same = rows < 0, query[1:] == query[:-1]

    def joined(name: str) -> NDArray[Any] | None:
        parts = [getattr(plans, name) for plans in found if len(plans)]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    def demand_none(wrong: NDArray[np.bool_] | None, said: str) -> None:
        if wrong is not None and wrong.any():
            demand(False, f"for query {query[wrong.argmax()]} {said}")

    beyond = (rows < (-1 if shorter else 0)) | (rows >= actions)
    demand_none(np.asarray(beyond.any(axis=1)), "ids that are no actions")
    resumed = (ended[:, :-1] & ~ended[:, 1:]).any(axis=1)
    demand_none(
        np.asarray(ended[:, 0] | resumed), "a plan without an action, or with one after its end"
    )
    scores, energies, chances, ids = map(joined, ("scores", "energies", "probabilities", "tasks"))
    assert scores is not None
    assert energies is not None
    known = np.repeat([bool(plans.finite) for plans in found], counts)
    numbers = np.isfinite(scores) & np.isfinite(energies)
    demand_none(known & ~numbers, "energies or scores that are NaN or infinite")
    demand_none(np.append(False, same & (scores[1:] < scores[:-1])), "scores that do not ascend")
    if chances is not None:
        rises = same & (np.diff(chances) > 1e-6)
        demand_none(np.append(False, rises), "probabilities that do not descend")
    if ids is not None:
        demand_none((ids < 0) | (ids >= tasks), "ids that are no tasks")
    order = np.lexsort((*rows.T, query))
    repeats = (np.diff(rows[order], axis=0) == 0).all(axis=1) & (np.diff(query[order]) == 0)
    again = np.zeros(len(query), dtype=np.bool_)
    again[order[1:]] = repeats
    demand_none(again, "a plan twice")
    for place in range(len(found)) if any(constraints) else ():
        if actions < np.inf and not _obey(rows[query == place], constraints[place], int(actions)):
            demand(False, f"for query {place} a plan that breaks the constraints")


def _demand_shapes(plans: Plans, top_k: int, horizon: int, shorter: bool, probable: bool) -> None:
    """Demand the types and shapes of the plans of one query."""
    count, width = array("actions", plans.actions, (np.inf, np.inf), "iu").shape
    demand(count <= top_k, f"{count} plans, more than {top_k}")
    right = width <= horizon if shorter else width == horizon
    demand(right, f"plans of {width} actions, not {'at most ' * shorter}{horizon}")
    array("energies", plans.energies, (count,), "iuf")
    array("scores", plans.scores, (count,), "iuf")
    demand(isinstance(plans.exact, bool | np.bool_), "'exact' that is no bool")
    demand(isinstance(plans.evaluated, SearchCost), "'evaluated' that is no SearchCost")
    if plans.tasks is not None:
        array("tasks", plans.tasks, (count,), "iu")
    both = plans.probabilities is None or plans.task_probabilities is None
    demand(not (probable and both), "plans without the probabilities that its description has")
    if plans.probabilities is not None:
        total = shares("probabilities", plans.probabilities, (count,)).sum()
        demand(total <= 1 + _NEAR, f"probabilities with the sum {total:.4g}")
    if plans.task_probabilities is not None:
        shares("probabilities of tasks", plans.task_probabilities, (count,))
    rest = [*(plans.length_probabilities or {}).values(), plans.searched_mass or 0.0]
    shares("probabilities of lengths, or a searched mass,", np.array(rest, float), (np.inf,))


def _obey(rows: NDArray[np.int64], constraints: Constraints, actions: int) -> bool:
    """Whether plans [k, T] satisfy constraints."""
    lengths = (rows >= 0).sum(axis=1)
    try:
        return all(
            Feasible(constraints, range(actions), length)
            .valid(rows[lengths == length, :length])
            .all()
            for length in np.unique(lengths).tolist()
        )
    except ConfigError:  # no plan of the length does
        return False
