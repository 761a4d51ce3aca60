"""The objective: energy and chain with their weights, and probabilities of plans.

Probabilities are shares of exp(−score), since the objective is log-linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cefito.planners.chain.model import ChainEvidence
from cefito.search.problem import Plans


@dataclass(frozen=True)
class Weights:
    """Weights of the two terms of the score, of which the lowest is best.

        score = energy · E(a) − chain · log q(c, a | observations)

    q(c, a) is the probability of the task times the chain's probability of the sequence within it.
    """

    energy: float
    chain: float


ENERGY = Weights(energy=1.0, chain=0.0)
"""The energy alone (paper, Eq. 4)."""
CHAIN = Weights(energy=0.0, chain=1.0)
"""The chain alone, as it was calibrated."""


@dataclass(frozen=True)
class Hypothesis:
    """A task that a query may belong to."""

    query: int
    task: int
    log_probability: float  # of the task given the observations; 0 if the task is given


@dataclass(frozen=True)
class Posterior:
    """Turns the scores of the sequences found into probabilities.

        p(plan) = M · exp(−score) / Σ_found exp(−score),    M = Σ_found q(c, a) / Σ q(c, a)

    M is the probability of all sequences found together under the chain, so that sequences and
    tasks that were not searched keep their probability under it. Under constraints the share of the
    allowed sequences that were found is not known; M is then 1, and plans are only compared with
    each other.
    """

    # least number of sequences of each task that are compared if probabilities need a search
    COMPARED: ClassVar[int] = 64

    evidence: ChainEvidence  # the chain of some queries
    log_tasks: NDArray[np.float64]  # log-probability of each task, −∞ if another is given, [N, C]
    constrained: bool

    def weighed(self, query: int, plans: Plans, found: Sequence[tuple[Hypothesis, Plans]]) -> Plans:
        """Return the best plans of a query with their probabilities."""
        scores = np.concatenate([part.scores for _, part in found]) if found else np.zeros(0)
        if not np.isfinite(scores).any():  # nothing found, or a field that diverged
            return replace(plans, probabilities=np.zeros(len(plans)), searched_mass=0.0)
        mass = None if self.constrained else self._mass(query, found)
        # exp(−score) / Σ_found exp(−score), [k]
        shares = np.exp(-plans.scores - np.logaddexp.reduce(-scores))
        probabilities = shares if mass is None else mass * shares
        return replace(plans, probabilities=probabilities, searched_mass=mass)

    def _mass(self, query: int, found: Sequence[tuple[Hypothesis, Plans]]) -> float:
        tasks = np.repeat(
            np.array([hypothesis.task for hypothesis, _ in found], dtype=np.int64),
            [len(part) for _, part in found],
        )
        sequences = np.concatenate([part.actions for _, part in found])
        # log q(c, a) = log q(a | c) + log p(c) of the sequences found
        logs = self.evidence.log_sequences(query, tasks, sequences) + self.log_tasks[query, tasks]
        every = self.log_tasks[query, np.isfinite(self.evidence.sums[query])]  # that has sequences
        return min(1.0, float(np.exp(np.logaddexp.reduce(logs) - np.logaddexp.reduce(every))))
