"""Probabilities of plans: the objective is log-linear, so a plan's probability is its share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cefito.planners.cefito.hypotheses import Hypothesis
from cefito.planners.cefito.weights import Weights
from cefito.planners.crf.model import ChainEvidence
from cefito.search.problem import Plans

__all__ = ["COMPARED", "Posterior"]

COMPARED = 64
"""Sequences of each task, at least, that are compared where probabilities need a search."""


@dataclass(frozen=True)
class Posterior:
    """Makes probabilities of the scores of what was searched.

    What the sequences found hold together, M, is said by the chain, summed over all sequences of
    all tasks by forward and backward recursions; the objective's scores share it out among them:

        p(plan) = M · exp(−score) / Σ_found exp(−score)

    So sequences and tasks that were not searched keep what the chain gives them. Where energy and
    prior weigh nothing, scores are those of the chain to the power of its weight, M is that chain's
    and p is exact, whatever was found. Otherwise M is the calibrated chain's.

    Under constraints it is not known what share of the allowed sequences was found; M is then 1,
    and plans are compared with what was found alone.

    Attributes:
        evidence: The chain of some queries.
        log_tasks: Log-probability of each task, −∞ where another is given, [N, C].
        power: Weight of the chain in M.
        task: Weight of the task in M.
        log_total: Logarithm of all sequences' sum [N].
        exact: Whether probabilities do not depend on what is searched.
        constrained: Whether plans must satisfy constraints.
    """

    evidence: ChainEvidence
    log_tasks: NDArray[np.float64]
    power: float
    task: float
    log_total: NDArray[np.float64]
    exact: bool
    constrained: bool

    @classmethod
    def make(
        cls,
        evidence: ChainEvidence,
        log_tasks: NDArray[np.float64],
        weights: Weights,
        *,
        constrained: bool,
    ) -> Self:
        """The posterior of some queries under an objective.

        Args:
            evidence: The chain of the queries.
            log_tasks: Log-probability of each task [N, C].
            weights: Of the objective, that of the task as if all were searched.
            constrained: Whether plans must satisfy constraints.
        """
        alone = not weights.energy and not weights.prior
        power, task = (weights.chain, weights.task) if alone else (1.0, 1.0)
        logs = evidence.log_power_sums(power) + _times(task, log_tasks)
        return cls(
            evidence=evidence,
            log_tasks=log_tasks,
            power=power,
            task=task,
            log_total=np.asarray(np.logaddexp.reduce(logs, axis=1)),
            exact=alone and not constrained,
            constrained=constrained,
        )

    def weighed(self, query: int, plans: Plans, found: Sequence[tuple[Hypothesis, Plans]]) -> Plans:
        """The best plans of a query with their probabilities.

        Args:
            query: Number of the query.
            plans: The best of all that was found.
            found: All that was found, task by task.
        """
        scores = np.concatenate([part.scores for _, part in found]) if found else np.zeros(0)
        if not np.isfinite(scores).any():  # nothing found, or a field that diverged
            return replace(plans, probabilities=np.zeros(len(plans)), searched_mass=0.0)
        mass = 1.0 if self.constrained else self._mass(query, found)
        shares = np.exp(-plans.scores - np.logaddexp.reduce(-scores))
        known = None if self.constrained else mass
        return replace(
            plans, probabilities=mass * shares, searched_mass=1.0 if self.exact else known
        )

    def _mass(self, query: int, found: Sequence[tuple[Hypothesis, Plans]]) -> float:
        tasks = np.repeat(
            np.array([hypothesis.task for hypothesis, _ in found], dtype=np.int64),
            [len(part) for _, part in found],
        )
        sequences = np.concatenate([part.actions for _, part in found])
        logs = self.power * self.evidence.log_sequences(query, tasks, sequences)
        logs += _times(self.task, self.log_tasks[query, tasks])
        return min(1.0, float(np.exp(np.logaddexp.reduce(logs) - self.log_total[query])))


def _times(weight: float, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted log-probabilities; what is impossible stays so, also where it weighs nothing."""
    known = np.isfinite(logs)
    return np.where(known, weight * np.where(known, logs, 0.0), -np.inf)
