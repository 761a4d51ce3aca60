"""Weights of the objective's terms, and their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cefito.planners.base import Evidence

__all__ = ["NOTHING_FITTED", "OBJECTIVES", "PAPER", "TERMS", "Evidence", "ObjectiveFit", "Weights"]

TERMS = ("energy", "prior", "chain", "task")
OBJECTIVES = {"energy": ("energy", "task"), "prior": ("energy", "prior", "task"), "fitted": TERMS}
"""The terms of each objective; the task's term matters if several tasks are searched."""


@dataclass(frozen=True)
class Weights:
    """Weights of the terms of the score, of which the lowest is best.

    score = energy · E − prior · log p(sequence | task)
            − chain · log q(sequence | task, observations) − task · log p(task | observations)
    """

    energy: float = 1.0  # of the energy; one over the temperature
    prior: float = 0.0  # of the prior over sequences
    chain: float = 0.0  # of the chain's probability of the sequence within its task
    task: float = 0.0  # of the task's probability; matters if several tasks are searched

    def heated(self, temperature: float) -> Weights:
        """Return the weights of score / temperature: same plans, other probabilities."""
        return Weights(**{name: weight / temperature for name, weight in vars(self).items()})


PAPER = Weights()
"""The energy alone (paper, Eq. 4)."""


@dataclass(frozen=True)
class ObjectiveFit:
    """Result of fitting the objective on validation windows."""

    # weights of each objective in `OBJECTIVES`
    weights: Mapping[str, Weights] = field(default_factory=lambda: dict.fromkeys(OBJECTIVES, PAPER))
    # weights of the objective without the energy
    guide: Weights = Weights(energy=0.0, chain=1.0, task=1.0)
    tasks: int = 1  # number of tasks to search
    evidence: Evidence | None = None  # evidence for the energy; None with too few videos


NOTHING_FITTED = ObjectiveFit()
"""The paper's energy in one task; without the energy, the chain as it is."""
