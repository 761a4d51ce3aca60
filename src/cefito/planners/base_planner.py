"""Base of planners: defaults of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.planners.base import (
    Abilities,
    Description,
    Fitted,
    Marginals,
    Planner,
    Shape,
    Vocabulary,
)
from cefito.planners.checks import LISTED, check_finetuning, check_queries
from cefito.planners.queries import Queries
from cefito.planners.shared.settings import PlanningConfig
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans

if TYPE_CHECKING:
    from cefito.training.trainer import TrainingContext

__all__ = ["BasePlanner"]


class BasePlanner:
    """Defaults of planners: their plans come from `decode`; they refuse what they cannot do.

    Dataclasses of them are made with `repr=False`, for their fields are far too large to print.
    """

    abilities: ClassVar[Abilities] = Abilities()
    name: str

    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:  # noqa: ARG003
        """Return nothing: no paper describes its networks."""
        return {}

    def __repr__(self) -> str:
        own = cast("Planner", self)
        return (
            f"{type(self).__name__}(T = {own.horizon}, {own.observation_dim} features, "
            f"{sum(own.describe().parameters.values()):,} parameters)"
        )

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of each network that takes part in planning, by its name."""
        return {}

    @property
    def vocabulary(self) -> Vocabulary:
        """Unknown numbers of tasks and actions."""
        return Vocabulary(None, None)

    @property
    def mean_observation(self) -> NDArray[np.float32] | None:
        """None: it is not kept."""
        return None

    @property
    def reads_elapsed(self) -> bool:
        """False: it makes no use of it."""
        return False

    def describe(self) -> Description:
        """Describe its parts."""
        return Description(
            name=self.name,
            parameters=self.parameters,
            probabilities=self.abilities.probabilities,
        )

    def marginals(self, queries: Queries) -> Marginals:  # noqa: ARG002
        """Return no probabilities."""
        return Marginals()

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """Return the given tasks, else the likeliest ones [N]; None if it predicts none."""
        if queries.tasks is not None:
            return queries.tasks
        tasks = self.marginals(queries).tasks
        return None if tasks is None else tasks.argmax(axis=1).astype(np.int64, copy=False)

    def refit(
        self,
        train: Windows,  # noqa: ARG002
        val: Windows,  # noqa: ARG002
        *,
        settings: Any,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        context: TrainingContext,  # noqa: ARG002
    ) -> Fitted[Self]:
        """Refuse: it cannot be finetuned."""
        check_finetuning(cast("Planner", self))
        raise NotImplementedError(f"{self.name} has the ability, but no method, to be finetuned")

    def most_operations(
        self,
        queries: Queries,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
        constraints: Constraints = UNCONSTRAINED,  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return None: its cost does not grow."""
        return None

    def log_probabilities(
        self,
        queries: Queries,  # noqa: ARG002
        sequences: NDArray[np.int64],  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return None: only the plans that it lists have probabilities, if any."""
        return None

    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]] | None:  # noqa: ARG002
        """Return None: it computes no sums over all plans."""
        return None

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
        check_queries(cast("Planner", self), queries, top_k, constraints)
        return self.decode(queries, top_k) if len(queries) else []

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """Return the `top_k` best plans of each query, best first; there is at least one query."""
        raise NotImplementedError
