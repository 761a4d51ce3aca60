"""What planners share that predict a task and then denoise plans of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cefito.planners.base import (
    UNCONSTRAINED,
    BasePlanner,
    Planner,
    Queries,
    Vocabulary,
    check_queries,
)
from cefito.planners.diffusion.model import DiffusionModel, best_plans, check_tasks
from cefito.planners.task_model import TaskPredictor
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Effort, Plans

__all__ = ["TaskDiffusionPlanner"]


@dataclass(frozen=True, eq=False, repr=False)
class TaskDiffusionPlanner(BasePlanner):
    """Plans by diffusion given a task: its own fitting and loading are all that a method adds.

    The best plan takes the highest score of each step in one sample; the further ones have the next
    highest sums of scores. The energy of a plan is minus its sum. The initial noise is the same for
    every query and is saved with the network: the plan of a query does not depend on which others
    are planned with it.

    Attributes:
        task_model: Predicts tasks.
        model: The diffusion network; the task is its only given block.
    """

    task_model: TaskPredictor[Any]
    model: DiffusionModel[Any]

    def save(self, folder: Path | str) -> None:
        """Write both networks."""
        folder = Path(folder)
        self.task_model.save(folder)
        self.model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        return {
            self.task_model.title: self.task_model.parameters,
            self.model.title: self.model.parameters,
        }

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return int(self.model.network.horizon)

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return int(self.model.network.observation_dim)

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        network = self.model.network
        return Vocabulary(network.task_count, network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task model's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query's task.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension, or an unknown task.
        """
        check_queries(cast("Planner", self), queries, top_k, constraints)
        if not len(queries):
            return []
        tasks = self.predict_tasks(queries)
        check_tasks(tasks, self.model.network.task_count)
        scores = self.model.scores(queries, tasks).astype(np.float64)
        forwards = self.horizon * self.model.network.config.sampling
        effort = Effort(token_forwards=forwards, leaves=0)
        return [best_plans(query_scores, top_k, effort) for query_scores in scores]
