"""Base of planners: plans come from `decode`, and what a planner cannot do is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from cefito.errors import ConfigError
from cefito.planners.base import Description, Fitted, Planner
from cefito.planners.checks import LISTED, check_finetuning, check_queries
from cefito.planners.queries import Queries
from cefito.planners.shared.settings import PlanningConfig
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans


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

        Args:
            queries: N queries.
            top_k: Number of plans of each.
            constraints: Constraints on the plans.
        """
        return self.decode(queries, top_k)

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """Return the `top_k` best plans of each query, best first; there is at least one query."""
        raise NotImplementedError
