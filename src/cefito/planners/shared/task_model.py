"""Calibration of the probability of the best plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.field.classifier import TaskClassifier
from cefito.planners.base import Queries, Shape
from cefito.planners.network import TrainedNetwork
from cefito.planners.queries import finite_outputs
from cefito.runtime import full_precision
from cefito.training.losses import ClassifierLoss

_SPREAD = 0.3  # standard deviation of the prior of the temperature's logarithm
_SUREST = 1 - 1e-9
COLDEST, HOTTEST = 0.25, 8.0
"""Bounds of temperatures."""


def confident_temperature(
    sure: Callable[[float], NDArray[np.float64]],
    right: NDArray[np.bool_],
    *,
    videos: int,
    centre: float = 1.0,
) -> float:
    """Fit the temperature under which the best plan's probability is how often it is right.

    Maximises the log-likelihood of `right` under `sure`. The logarithm of the temperature has a
    normal prior around log(centre).

    Args:
        sure: Probabilities of the best plans [N] at a temperature.
        right: Whether these are right [N].
        videos: Number of videos, each of which counts as one observation.
        centre: Centre of the temperature's prior.
    """
    from scipy.optimize import minimize_scalar

    if not len(right):
        return centre

    def loss(log_temperature: float) -> float:
        probability = sure(math.exp(log_temperature)).clip(1 - _SUREST, _SUREST)
        misfit = -float(np.log(np.where(right, probability, 1 - probability)).mean())
        return videos * misfit + (log_temperature - math.log(centre)) ** 2 / (2 * _SPREAD**2)

    bounds = math.log(COLDEST), math.log(HOTTEST)
    optimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(optimum.x))


@dataclass(frozen=True)
class TaskModel(TrainedNetwork[TaskClassifier]):
    """The trained task classifier that methods share."""

    title: ClassVar[str] = "task classifier"
    part: ClassVar[str] = "classifier"
    trained: ClassVar[str] = "classifier_training"
    stream: ClassVar[int] = 2

    @override
    @classmethod
    def build(cls, config: Any, shape: Shape) -> TaskClassifier:
        return TaskClassifier(
            config=config, observation_dim=shape.observation_dim, task_count=shape.tasks
        )

    @override
    @classmethod
    def make_loss(
        cls, network: TaskClassifier, train: Windows, val: Windows, settings: Any, *arrays: Any
    ) -> ClassifierLoss:
        return ClassifierLoss(network, train, val, settings.classifier_training)

    @override
    @classmethod
    def determining(
        cls, settings: Any, shape: Shape, suffix: str, digests: Sequence[str]
    ) -> list[Any]:
        parts = cls.config_of(settings), cls.training_of(settings)
        return [shape.horizon, *(config.model_dump() for config in parts)]

    @torch.inference_mode()
    @full_precision()
    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Log p(task | observations), [N, |C|]."""
        logits = finite_outputs(self.network(*self.observations(queries)), self.title)
        return np.asarray(logits.float().log_softmax(dim=1).cpu().numpy())

    def probabilities(self, queries: Queries) -> NDArray[np.float64]:
        """p(task | observations), [N, |C|]."""
        return np.exp(self.log_probabilities(queries).astype(np.float64))

    def predict(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks if there are any, else the likeliest ones, [N]."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.log_probabilities(queries).argmax(axis=1), dtype=np.int64)
