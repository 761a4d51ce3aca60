"""Demands on what planners of other packages return: the contract of `cefito.testing`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import getattr_static
from typing import Any

import numpy as np

from cefito.data.annotations import Taxonomy
from cefito.planners.base import Abilities, Description, Fitted, Marginals, Planner, Vocabulary
from cefito.planners.queries import Queries
from cefito.plugins import array, demand, recast, shares
from cefito.search.checks import demand_plans
from cefito.search.constraints import UNCONSTRAINED, Constraints

_OWN = ("fit", "load", "save")  # methods that every planner writes itself
_NEAR = 1e-3  # by which sums of probabilities in single precision may differ from one


def class_fault(kind: Any) -> str:
    """Return what a class of planners lacks, empty if nothing."""
    if not isinstance(kind, type) or not isinstance(getattr(kind, "abilities", None), Abilities):
        return "its planner is not a class with Abilities"
    lacking = [
        name
        for name in PLANNER_CHECKS
        if not callable(getattr(kind, name, None))
        or (name in _OWN and getattr_static(kind, name) is vars(Planner)[name])
    ]
    return f"its planner has no {', '.join(lacking)}; derive it from BasePlanner" if lacking else ""


def with_taxonomy(planner: Planner, taxonomy: Taxonomy) -> Planner:
    """Let a planner of another package be checked for ids that its run does not have."""
    if hasattr(type(planner), "_checked"):
        sizes = Vocabulary(len(taxonomy.tasks), len(taxonomy.actions))
        with suppress(AttributeError):  # of slots
            object.__setattr__(planner, "_sizes", sizes)
    return planner


def _sizes(planner: Any) -> tuple[float, float]:
    """Return the numbers of tasks and actions, infinity if they are not known."""
    of_run = getattr(planner, "_sizes", (None, None))
    known = zip(planner.vocabulary, of_run, strict=True)
    tasks, actions = ((own or run or np.inf) for own, run in known)
    return tasks, actions


def _any(planner: Any, found: Any, *given: Any, **named: Any) -> Any:  # noqa: ARG001
    return found


def _description(planner: Any, found: Any) -> Any:  # noqa: ARG001
    demand(isinstance(found, Description), f"no Description but a {type(found).__name__}")
    return found


def _planner(own: Any, found: Any, *given: Any, **named: Any) -> Any:  # noqa: ARG001
    """Demand a planner, whose values are checked as well."""
    found = recast(found, own if isinstance(own, type) else type(own))
    if known := getattr(own, "_sizes", None):
        object.__setattr__(found, "_sizes", known)
    demand(isinstance(found.name, str) and found.name, f"a planner of the name {found.name!r}")
    for value in (found.horizon, found.observation_dim):
        right = isinstance(value, int | np.integer) and value >= 1
        demand(right, f"a planner whose horizon or observation_dim is {value!r}")
    vocabulary, mean = found.vocabulary, found.mean_observation
    demand(isinstance(vocabulary, Vocabulary), "a planner whose vocabulary is no Vocabulary")
    demand(isinstance(found.reads_elapsed, bool), "a planner whose reads_elapsed is no bool")
    if mean is not None:
        array("mean observations", mean, (found.observation_dim,), "f")
    return found


def _fitted(own: Any, found: Any, *given: Any, **named: Any) -> Any:  # noqa: ARG001
    demand(isinstance(found, Fitted), f"no Fitted but a {type(found).__name__}")
    return Fitted(_planner(own, found.planner), found.trainings, found.all_videos)


def _plans(
    planner: Any,
    found: Any,
    queries: Queries,
    top_k: int,
    *,
    constraints: Constraints = UNCONSTRAINED,
    **named: Any,  # noqa: ARG001
) -> Any:
    tasks, actions = _sizes(planner)
    demand_plans(
        found,
        top_k,
        horizon=planner.horizon,
        constraints=[constraints] * len(queries),
        actions=actions,
        tasks=tasks,
        shorter=planner.abilities.any_length,
        probable=planner.describe().probabilities,
    )
    return found


def _marginals(planner: Any, found: Any, queries: Queries) -> Any:
    demand(isinstance(found, Marginals), f"no Marginals but a {type(found).__name__}")
    (tasks, actions), count = _sizes(planner), len(queries)
    if found.tasks is not None:
        sums = shares("probabilities of tasks", found.tasks, (count, tasks)).sum(axis=1)
        demand(np.allclose(sums, 1, atol=_NEAR), f"probabilities of tasks with the sums {sums[:3]}")
    if found.steps is not None:
        shape = count, planner.horizon, actions
        sums = shares("probabilities of steps", found.steps, shape).sum(axis=2)
        demand((sums <= 1 + _NEAR).all(), f"probabilities of a step with the sum {sums.max():.4g}")
    return found


def _tasks(planner: Any, found: Any, queries: Queries) -> Any:
    if found is not None:
        tasks = array("tasks", found, (len(queries),), "iu")
        demand(((tasks >= 0) & (tasks < _sizes(planner)[0])).all(), "ids that are no tasks")
    return found


def _operations(planner: Any, found: Any, queries: Queries, *given: Any, **named: Any) -> Any:  # noqa: ARG001
    if found is not None:
        most = array("operations", found, (len(queries),), "iuf")
        demand((most >= 0).all(), "operations that are NaN or negative")
    return found


def _logs(planner: Any, found: Any, queries: Queries, sequences: Any) -> Any:  # noqa: ARG001
    if found is not None:
        logs = array("log-probabilities", found, (len(queries),), "f")
        demand((logs <= _NEAR).all(), "log-probabilities that are NaN or above 0")
    return found


def _pairs(planner: Any, found: Any, queries: Queries) -> Any:
    if found is not None:
        actions = _sizes(planner)[1]
        shares("probabilities of pairs", found, (len(queries), actions, actions + 1))
    return found


PLANNER_CHECKS: dict[str, Callable[..., Any]] = {
    "sizes": _any,
    "fit": _fitted,
    "refit": _fitted,
    "load": _planner,
    "save": _any,
    "describe": _description,
    "with_search": _planner,
    "predict_tasks": _tasks,
    "marginals": _marginals,
    "most_operations": _operations,
    "log_probabilities": _logs,
    "first_pairs": _pairs,
    "plan": _plans,
}
"""What checks the value of each method of a planner; see `cefito.plugins.checked_class`."""
