"""The objective: weights of its terms, and probabilities of plans.

Probabilities are shares of exp(−score), since the objective is log-linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.planners.base import Evidence
from cefito.planners.chain.model import ChainEvidence
from cefito.search.problem import Plans

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

    @property
    def chain_alone(self) -> bool:
        """Whether the chain and its tasks are all that counts."""
        return not self.energy and not self.prior and self.chain > 0

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


UNFITTED = ObjectiveFit()
"""The paper's energy in one task; without the energy, the chain as it is."""


@dataclass(frozen=True)
class Hypothesis:
    """A task that a query may belong to."""

    query: int
    task: int
    log_probability: float  # of the task given the observations; 0 if the task is given


@dataclass(frozen=True)
class Posterior:
    """Turns the scores of the sequences found into probabilities.

        p(plan) = M · exp(−score) / Σ_found exp(−score)

    M is the probability of all sequences found together under the chain, normalised over all
    sequences of all tasks by the forward recursion. Sequences and tasks that were not searched so
    keep their probability under the chain. If energy and prior have no weight, scores are those of
    the chain to the power of its weight, M is that chain's, and p is exact for any set of sequences
    found. Otherwise M is the calibrated chain's.

    Under constraints the share of the allowed sequences found is not known; M is then 1, and plans
    are only compared with each other.
    """

    # least number of sequences of each task that are compared if probabilities need a search
    COMPARED: ClassVar[int] = 64

    evidence: ChainEvidence  # the chain of some queries
    log_tasks: NDArray[np.float64]  # log-probability of each task, −∞ if another is given, [N, C]
    power: float  # weight of the chain in M
    task: float  # weight of the task in M
    # log Σ q(sequence)^power p(task)^task over all sequences and tasks [N]
    log_total: NDArray[np.float64]
    exact: bool  # whether probabilities do not depend on the search
    constrained: bool

    @classmethod
    def make(
        cls,
        evidence: ChainEvidence,
        log_tasks: NDArray[np.float64],  # log-probability of each task [N, C]
        weights: Weights,  # weights of the objective, the task's as if all tasks were searched
        *,
        constrained: bool,
    ) -> Self:
        """Make the posterior of some queries under an objective."""
        alone = weights.chain_alone
        power, task = (weights.chain, weights.task) if alone else (1.0, 1.0)
        # log Σ_a q(a | c)^power + task · log p(c), [N, C]
        logs = evidence.log_power_sums(power) + times(task, log_tasks)
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
        """Return the best plans of a query with their probabilities."""
        scores = np.concatenate([part.scores for _, part in found]) if found else np.zeros(0)
        if not np.isfinite(scores).any():  # nothing found, or a field that diverged
            return replace(plans, probabilities=np.zeros(len(plans)), searched_mass=0.0)
        mass = 1.0 if self.constrained else self._mass(query, found)
        # exp(−score) / Σ_found exp(−score), [k]
        shares = np.exp(-plans.scores - np.logaddexp.reduce(-scores))
        known = None if self.constrained else mass
        return replace(
            plans, probabilities=mass * shares, searched_mass=1.0 if self.exact else known
        )

    def _mass(self, query: int, found: Sequence[tuple[Hypothesis, Plans]]) -> float:
        """Return M = Σ_found q(a | c)^power p(c)^task / total."""
        tasks = np.repeat(
            np.array([hypothesis.task for hypothesis, _ in found], dtype=np.int64),
            [len(part) for _, part in found],
        )
        sequences = np.concatenate([part.actions for _, part in found])
        logs = self.power * self.evidence.log_sequences(query, tasks, sequences)
        logs += times(self.task, self.log_tasks[query, tasks])
        return min(1.0, float(np.exp(np.logaddexp.reduce(logs) - self.log_total[query])))

    def masses(
        self,
        tasks: NDArray[np.int64],
        sequences: NDArray[np.int64],
        counted: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return M of all queries [N] for sequences [N, M, T] of tasks [N, M] that are counted."""
        scores = self.evidence.scores
        given = (torch.from_numpy(part).to(scores.emissions.device) for part in (tasks, sequences))
        values = scores.scores(scores.states.find(*given)).double().cpu().numpy()
        sums = np.where(counted, np.take_along_axis(self.evidence.sums, tasks, axis=1), 0.0)
        logs = self.power * (values - sums)
        logs += times(self.task, np.take_along_axis(self.log_tasks, tasks, axis=1))
        found = np.logaddexp.reduce(np.where(counted, logs, -np.inf), axis=1)
        return np.asarray(np.exp(found - self.log_total).clip(max=1))


def times(weight: float, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weighted log-probabilities; −∞ stays −∞, even with weight 0."""
    known = np.isfinite(logs)
    return np.where(known, weight * np.where(known, logs, 0.0), -np.inf)
