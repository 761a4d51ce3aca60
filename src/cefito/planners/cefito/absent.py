"""What stands in for the networks that imported weights come without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.search.settings import SearchConfig

__all__ = ["NoProposals", "NoTaskModel", "check_settings"]


class NoTaskModel:
    """In the place of a task classifier: tasks must be given."""

    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:  # noqa: ARG002
        """Refuse.

        Raises:
            RunError: Always.
        """
        raise RunError(
            "this run was imported without a task classifier, so tasks must be given. Or add one: "
            "cefito import-checkpoint FILE --kind task-classifier --out RUN.",
            setting="task",
        )


@dataclass(frozen=True)
class NoProposals:
    """In the place of a proposal network: every action is equally likely at every step.

    Attributes:
        horizon: T.
        action_count: K.
    """

    horizon: int
    action_count: int

    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Zeros, [N, T, K]."""
        return np.zeros((len(queries), self.horizon, self.action_count), dtype=np.float32)


def check_settings(settings: SearchConfig) -> None:
    """Refuse what rests on training windows.

    Raises:
        ConfigError: Settings that only a trained run can follow.
    """
    if settings.objective != "energy" or settings.pruning >= 0 or settings.prior_weight > 0:
        raise ConfigError(
            "this run was imported without training data, so it has neither a prior over sequences "
            "nor a proposal network. Plan with the objective 'energy', without pruning and a "
            "weight of the prior.",
            setting="objective",
        )
