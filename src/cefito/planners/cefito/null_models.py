"""Null models: stand-ins for networks that a run does not have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.search.settings import SearchConfig
from cefito.search.step_costs import StepCosts

__all__ = ["NoTaskModel", "UniformSequenceModel", "check_settings"]


class NoTaskModel:
    """Stand-in for a task classifier: tasks must be given."""

    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:  # noqa: ARG002
        """Refuse."""
        raise RunError(
            "this run has no task classifier, so tasks must be given. Or add one: cefito "
            "import-checkpoint FILE --kind task-classifier --out RUN.",
            setting="task",
        )


@dataclass(frozen=True)
class UniformSequenceModel:
    """Stand-in for a chain: all sequences of a task are equally likely."""

    space: ActionSpace
    horizon: int

    def evidence(self, queries: Queries) -> UniformSequenceModel:  # noqa: ARG002
        """Return itself: it does not depend on the queries."""
        return self

    def log_tasks(self) -> NDArray[np.float64]:
        """Refuse."""
        raise RunError(
            "this run was imported without a chain to predict tasks by.", setting="task_model"
        )

    def costs(self, query: int, task: int) -> StepCosts:  # noqa: ARG002
        """Return costs of zero."""
        return StepCosts.free(self.horizon, len(self.space.actions[task]))


def check_settings(settings: SearchConfig) -> None:
    """Refuse settings that need training windows."""
    if settings.objective != "energy" or settings.pruning >= 0 or settings.prior_weight > 0:
        raise ConfigError(
            "this run was imported without training data, so it has neither a prior over sequences "
            "nor a chain. Plan with the objective 'energy', without pruning and a weight of the "
            "prior.",
            setting="objective",
        )
