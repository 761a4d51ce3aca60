"""Base of planners, and refusals: of what a planner cannot do, and of plans that are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeGuard

import numpy as np

from cefito.errors import ConfigError, RunError
from cefito.planners.base import Description, Fitted, Planner, PlannerOfLengths
from cefito.planners.queries import Queries
from cefito.planners.shared.settings import PlanningConfig
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints, check_actions
from cefito.search.problem import Plans

LISTED = "cefito planners lists the methods that can"
"""The remedy if a method lacks an ability."""


class BasePlanner(Planner):
    """A planner whose plans come from `decode`; it refuses what it cannot do.

    Dataclasses of it are made with `repr=False`, for their fields are far too large to print.
    """

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(T = {self.horizon}, {self.observation_dim} features, "
            f"{sum(self.describe().parameters.values()):,} parameters)"
        )

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of each network that takes part in planning, by its name."""
        return {}

    def describe(self) -> Description:
        """Describe its parts."""
        return Description(
            name=self.name, parameters=self.parameters, probabilities=self.abilities.probabilities
        )

    def refit(self, *_: Any, **__: Any) -> Fitted[Self]:
        """Refuse: it cannot be finetuned."""
        check_finetuning(self)
        raise NotImplementedError(f"{self.name} has the ability, but no method, to be finetuned")

    def with_search(self, settings: PlanningConfig) -> Self:  # noqa: ARG002
        """Refuse: it has no search that could be changed."""
        raise ConfigError(f"{self.name} has no search to choose; {LISTED}.")

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """Return the best plans of each query, by `decode`, which is not stopped."""
        check_queries(self, queries, top_k, constraints)
        return self.decode_allowed(queries, top_k, constraints) if len(queries) else []

    def decode_allowed(
        self,
        queries: Queries,
        top_k: int,
        constraints: Constraints,  # noqa: ARG002
    ) -> list[Plans]:
        """Return the `top_k` best plans that satisfy constraints; override it if plans can.

        Arguments are as of `plan`.
        """
        return self.decode(queries, top_k)

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """Return the `top_k` best plans of each query, best first; there is at least one query."""
        raise NotImplementedError


def plans_lengths(planner: Planner) -> TypeGuard[PlannerOfLengths]:
    """Return whether a planner plans several numbers of steps."""
    return planner.abilities.any_length


def check_queries(
    planner: Planner, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
) -> None:
    """Refuse queries that a planner cannot plan, before any work.

    Args:
        planner: Fitted planner.
        queries: Queries.
        top_k: Number of plans of each.
        constraints: Constraints on the plans.
    """
    if not isinstance(top_k, int | np.integer) or top_k < 1:
        whole = "" if isinstance(top_k, int) else ", a whole number"
        raise ConfigError(f"top_k {top_k}: expected at least 1{whole}.", setting="top_k")
    if constraints:
        if not planner.abilities.constraints:
            raise ConfigError(f"{planner.name} cannot obey constraints; {LISTED}.")
        check_actions(constraints, planner.vocabulary.actions)
    if planner.vocabulary.tasks is not None:
        queries.check_ids("tasks", planner.vocabulary.tasks)
    if not queries.whole:
        check_partial(planner, "goal" if queries.done is None else "done")
        if planner.vocabulary.actions is not None:
            queries.check_ids("done", planner.vocabulary.actions)
    if queries.elapsed is not None:
        check_elapsed(planner)
    if (width := queries.initial.shape[1]) != planner.observation_dim:
        raise RunError(
            f"observations have {width} features; this run was trained on "
            f"{planner.observation_dim}."
        )


def check_partial(planner: Planner, setting: str) -> None:
    """Refuse a planner that needs both observations and takes no steps done before."""
    if not planner.abilities.any_length:
        raise ConfigError(
            f"{planner.name} needs both observations and takes no steps done before. Train a run "
            "of several lengths for this (method any-length).",
            setting=setting,
        )


def check_elapsed(planner: Planner) -> None:
    """Refuse a planner that makes no use of the time between both observations."""
    if not planner.reads_elapsed:
        raise ConfigError(
            f"{planner.name} did not learn from the time between observations. Leave it out, or "
            "train a run of several lengths on videos whose steps have times.",
            setting="elapsed",
        )


def check_finite(plans: Plans, query: int) -> None:
    """Refuse plans that were chosen among energies that are not finite numbers."""
    if not (plans.finite and np.isfinite(plans.energies).all() and np.isfinite(plans.scores).all()):
        raise RunError(
            f"query {query} (counted from 0): the energies of its sequences are NaN or infinite, "
            "so there is no best plan. Give observations made in the same way as the run's; if "
            "they are, the run's weights are of no use: train it again."
        )


def check_plans(planner: Planner, answers: Sequence[Plans], actions: int) -> None:
    """Refuse plans of a wrong shape, or of ids that are no actions (RunError).

    Args:
        planner: Planner that made them.
        answers: Plans of each query.
        actions: K.
    """
    for plans in answers:
        rows = np.asarray(plans.actions)
        fits = rows.ndim == 2 and rows.shape[1] <= planner.horizon
        if not fits or (rows < -1).any() or (rows >= actions).any():
            raise RunError(
                f"{planner.name}: plans of the shape {list(rows.shape)} or with ids of no actions; "
                f"expected rows of {planner.horizon} ids below {actions}. Test the planner by "
                "cefito.testing.PlannerContract."
            )


def check_finetuning(planner: Planner) -> None:
    """Refuse a planner that cannot be finetuned (ConfigError)."""
    if not planner.abilities.finetuning:
        raise ConfigError(f"{planner.name} cannot be finetuned; {LISTED}.")


def check_task_given(planner: Planner) -> None:
    """Refuse to give the task to a planner that plans the same without it (ConfigError)."""
    if not planner.abilities.true_task:
        raise ConfigError(
            f"{planner.name} makes no use of a given task. Leave it out.", setting="task"
        )


def check_min_probability(planner: Planner, least: float) -> None:
    """Refuse a least probability that is not from 0 to 1, or of plans without probabilities."""
    if not 0 <= least <= 1:
        raise ConfigError(
            f"least probability {least:g}: expected a number from 0 to 1.",
            setting="min_probability",
        )
    check_probabilities(planner, "min_probability")


def check_probabilities(planner: Planner, setting: str) -> None:
    """Refuse a planner whose plans have no probabilities."""
    if planner.describe().probabilities:
        return
    reason = f"{LISTED}."
    if planner.abilities.probabilities:
        reason = "it has them under the objectives 'fitted' and 'chain' of a trained run."
    raise ConfigError(
        f"{planner.name} gives plans no probabilities here; {reason}", setting=setting
    )
