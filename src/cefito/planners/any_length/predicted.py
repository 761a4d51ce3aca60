"""Planners of one number of steps each, with the number that the any-length chain predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.planners.base import Description, Planner, PlannerOfLengths, Queries, Vocabulary
from cefito.planners.base_planner import BasePlanner, check_queries, plans_lengths
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans, SearchCost

PREDICTED = ", predicted length"
"""End of the names of these planners."""
_ENCODED = SearchCost(token_forwards=2, leaves=0)  # both observations, to predict the length


class LengthPredictor(PlannerOfLengths, Protocol):
    """A planner of several numbers of steps that says how probable each is."""

    def log_lengths(self, queries: Queries) -> NDArray[np.float64]:
        """Return log p(length | what is known), with a task if it is given, [N, L]."""


def predicts_lengths(planner: Planner) -> TypeGuard[LengthPredictor]:
    """Return whether a planner says how probable each number of steps is."""
    return plans_lengths(planner) and hasattr(planner, "log_lengths")


@dataclass(frozen=True, eq=False, repr=False)
class PredictedLengthPlanner(BasePlanner):
    """Plans each query by the planner of its likeliest number of steps.

    It needs both observations. Probabilities are p(length) p(plan | length). Plans are padded with
    −1. It is made of planners that are fitted already, and is not fitted, saved or loaded itself.

    Raises:
        ConfigError: The planners are not one for each length.
    """

    lengths: LengthPredictor
    planners: tuple[Planner, ...]  # one for each of its lengths, ascending

    def __post_init__(self) -> None:
        horizons = [planner.horizon for planner in self.planners]
        if horizons != list(self.lengths.lengths):
            raise ConfigError(
                f"planners of {horizons} steps; expected one for each of {self.lengths.lengths}, "
                "in this order."
            )

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.planners[0].name + PREDICTED

    @property
    def horizon(self) -> int:
        """The longest of its lengths."""
        return self.lengths.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.lengths.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return self.lengths.vocabulary

    @classmethod
    def fit(cls, *_: Any, **__: Any) -> NoReturn:
        """Refuse: its planners are fitted, saved and loaded one by one."""
        raise NotImplementedError(f"{cls.__name__} is made of planners that are fitted")

    load = save = fit

    def describe(self) -> Description:
        """Describe the planners of all lengths as one."""
        parts = [planner.describe() for planner in self.planners]
        sizes = {
            f"{network}, T = {planner.horizon}": size
            for planner, description in zip(self.planners, parts, strict=True)
            for network, size in description.parameters.items()
        }
        return Description(
            name=self.name,
            parameters={**self.lengths.describe().parameters, **sizes},
            probabilities=all(description.probabilities for description in parts),
        )

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """Return the task that each query's planner plans it for [N]; None if it has none."""
        tasks = np.zeros(len(queries), dtype=np.int64)
        for planner, rows in self._chosen(self.lengths.log_lengths(queries)):
            predicted = planner.predict_tasks(queries.subset(rows))
            if predicted is None:
                return None
            tasks[rows] = predicted
        return tasks

    def _chosen(self, logs: NDArray[np.float64]) -> Iterator[tuple[Planner, NDArray[np.int64]]]:
        """Yield each planner whose length is the likeliest of some queries, and their rows."""
        likeliest = logs.argmax(axis=1)  # places of lengths [N]
        for place, planner in enumerate(self.planners):
            rows = np.flatnonzero(likeliest == place)
            if len(rows):
                yield planner, rows

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """Return the best plans of each query, of its likeliest length."""
        check_queries(self, queries, top_k, constraints)
        logs = self.lengths.log_lengths(queries)
        probabilities, plans_by_row = np.exp(logs), {}  # p(T) [N, L]
        for planner, rows in self._chosen(logs):
            plans = planner.plan(queries.subset(rows), top_k, stop=stop, progress=progress)
            for row, query_plans in zip(rows.tolist(), plans, strict=True):
                plans_by_row[row] = self._padded(query_plans, planner.horizon, probabilities[row])
        return [plans_by_row[row] for row in range(len(queries))]

    def _padded(self, plans: Plans, length: int, of_lengths: NDArray[np.float64]) -> Plans:
        """Return plans [k, T] of a query padded, with the probabilities p(T) [L] of its lengths."""
        missing = ((0, 0), (0, self.horizon - length))
        share = float(of_lengths[length - self.lengths.lengths[0]])
        probabilities, mass = plans.probabilities, plans.searched_mass
        return replace(
            plans,
            actions=np.pad(plans.actions, missing, constant_values=-1),
            evaluated=plans.evaluated + _ENCODED,
            # p(T) p(c, a | T)
            probabilities=None if probabilities is None else probabilities * share,
            searched_mass=None if mass is None else mass * share,
            length_probabilities=dict(zip(self.lengths.lengths, of_lengths.tolist(), strict=True)),
        )
