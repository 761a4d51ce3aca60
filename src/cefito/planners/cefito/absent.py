"""What stands in for the networks that imported weights come without.

A trained run has them all.
"""

from __future__ import annotations

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
            "this run was imported without a task classifier, so tasks must be given: --task ID "
            "for a plan, "
            "--oracle-task for scores. Or add one: cefito import-checkpoint FILE --kind "
            "task-classifier --out RUN."
        )


class NoProposals:
    """In the place of a proposal network: every action is equally likely at every step.

    Args:
        horizon: T.
        action_count: K.
    """

    def __init__(self, horizon: int, action_count: int) -> None:
        self._shape = (horizon, action_count)

    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Zeros, [N, T, K]."""
        return np.zeros((len(queries), *self._shape), dtype=np.float32)


def check_settings(settings: SearchConfig) -> None:
    """Refuse what rests on training windows.

    Raises:
        ConfigError: Settings that only a trained run can follow.
    """
    if settings.objective != "energy" or settings.pruning >= 0 or settings.prior_weight > 0:
        raise ConfigError(
            "this run was imported without training data, so it has neither a prior over "
            "sequences nor a "
            "proposal network. Plan with the energy alone: --objective energy, without --pruning "
            "and "
            "--prior-weight."
        )
