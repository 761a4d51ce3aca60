"""Weights of the objective's terms: a log-linear model of the true sequence among candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError

__all__ = [
    "NOTHING_FITTED",
    "OBJECTIVES",
    "PAPER",
    "TERMS",
    "ObjectiveFit",
    "Weights",
    "fit_weights",
]

TERMS = ("energy", "prior", "proposal", "task")
OBJECTIVES = {"energy": ("energy", "task"), "prior": ("energy", "prior", "task"), "fitted": TERMS}
"""The terms of each objective; the task's matters where several tasks are searched."""
_RIDGE = 0.1
_STEPS = 100


@dataclass(frozen=True)
class Weights:
    """Weights of the terms of the score, of which the lowest is best.

    score = energy · E − prior · log p(sequence | task) − proposal · Σ log q(step)
            − task · log p(task)

    Attributes:
        energy: Of the energy; one over the temperature.
        prior: Of the prior over sequences.
        proposal: Of the proposal network's step probabilities.
        task: Of the task classifier; matters where several tasks are searched.

    Raises:
        ConfigError: A negative or infinite weight.
    """

    energy: float = 1.0
    prior: float = 0.0
    proposal: float = 0.0
    task: float = 0.0

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            if not isinstance(weight, int | float) or not 0 <= weight < np.inf:
                raise ConfigError(
                    f"weight of the {name} is {weight!r}; expected a number of at least 0."
                )


PAPER = Weights()
"""The energy alone (paper, Eq. 4)."""


@dataclass(frozen=True)
class ObjectiveFit:
    """What was fitted on validation windows, beside the networks.

    Attributes:
        weights: Weights of each objective in `OBJECTIVES`.
        guide: Weights of the guide; its energy weight does not matter.
        tasks: How many tasks to search.

    Raises:
        ConfigError: Less than one task to search.
    """

    weights: Mapping[str, Weights] = field(default_factory=lambda: dict.fromkeys(OBJECTIVES, PAPER))
    guide: Weights = Weights(energy=0.0, prior=1.0, proposal=1.0)
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ConfigError(f"{self.tasks} tasks to search; expected at least 1.")


NOTHING_FITTED = ObjectiveFit()
"""The paper's energy, one task, and a guide that weighs prior and proposals alike."""


def fit_weights(
    features: Sequence[NDArray[np.float64]], truth: Sequence[int]
) -> NDArray[np.float64]:
    """Non-negative weights w that make the true candidates likeliest.

    A candidate's probability is ∝ exp(−features · w). The likelihood is concave in w and is
    maximised by projected Newton steps, with a small ridge; a term that would get a negative weight
    gets none.

    Args:
        features: For each query the features of its candidates [n, F].
        truth: Row of the true candidate of each query.

    Returns:
        Weights [F]; none at all where there is no query.
    """
    if not features:
        return np.zeros(0)
    rows = np.concatenate(features)
    first = np.cumsum([0, *(len(part) for part in features[:-1])])
    of = np.repeat(np.arange(len(features)), [len(part) for part in features])
    scale = rows.std(axis=0) + 1e-12
    # what all candidates of a query share does not matter
    rows = (rows - rows[first + np.asarray(truth)][of]) / scale

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = -rows @ weights
        top = np.maximum.reduceat(logits, first)
        exponentials = np.exp(logits - top[of])
        total = np.add.reduceat(exponentials, first)
        value = float((np.log(total) + top).sum() + _RIDGE / 2 * weights @ weights)
        return value, exponentials / total[of]

    weights = np.zeros(rows.shape[1])
    value, share = loss(weights)
    for _ in range(_STEPS):
        mean = np.add.reduceat(share[:, None] * rows, first)
        gradient = _RIDGE * weights - mean.sum(axis=0)
        curvature = (share[:, None] * rows).T @ rows - mean.T @ mean + _RIDGE * np.eye(len(weights))
        free = np.flatnonzero((weights > 0) | (gradient < 0))  # the others are held at zero
        step, size = np.zeros(len(weights)), 1.0
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        while True:
            changed = np.maximum(weights - size * step, 0.0)
            new, new_share = loss(changed)
            if new <= value or size < 1e-6:
                break
            size /= 2
        if not new < value - 1e-9 * max(1.0, abs(value)):
            break
        weights, value, share = changed, new, new_share
    return np.asarray(weights / scale)
