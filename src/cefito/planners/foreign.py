"""Demands on planners of other packages and on their plans; `cefito.testing` has the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import getattr_static
from typing import Any

import numpy as np

from cefito.data.annotations import Taxonomy
from cefito.planners.base import Abilities, Fitted, Planner, Vocabulary
from cefito.planners.queries import Queries
from cefito.plugins import array, demand, recast
from cefito.search.checks import demand_plans
from cefito.search.constraints import UNCONSTRAINED, Constraints

_OWN = ("fit", "load", "save")  # methods that every planner writes itself


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


def _any(planner: Any, found: Any, *given: Any, **named: Any) -> Any:  # noqa: ARG001
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
    known = zip(planner.vocabulary, getattr(planner, "_sizes", (None, None)), strict=True)
    tasks, actions = ((own or run or np.inf) for own, run in known)
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


PLANNER_CHECKS: dict[str, Callable[..., Any]] = {
    "sizes": _any,
    "fit": _fitted,
    "refit": _fitted,
    "load": _planner,
    "save": _any,
    "describe": _any,
    "with_search": _planner,
    "predict_tasks": _any,
    "marginals": _any,
    "most_operations": _any,
    "log_probabilities": _any,
    "first_pairs": _any,
    "plan": _plans,
}
"""What checks the value of each method of a planner; see `cefito.plugins.checked_class`."""
