"""Predicting the task of a query: the classifier with its training, saving and loading."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.classifier import TaskClassifier
from cefito.field.config import ClassifierConfig
from cefito.planners.base import Queries
from cefito.planners.trained import TrainedNetwork, TrainingContext
from cefito.training.config import ClassifierTrainingConfig
from cefito.training.objectives import ClassifierObjective
from cefito.training.trainer import generator_for

__all__ = ["TaskModel"]


class TaskModel(TrainedNetwork[TaskClassifier]):
    """A task classifier that can be fitted, saved and loaded.

    Args:
        config: The network.
        training: How it is trained.
        context: Where it is trained.
    """

    title = "task classifier"
    file = "classifier.safetensors"

    def __init__(
        self,
        *,
        config: ClassifierConfig,
        training: ClassifierTrainingConfig,
        context: TrainingContext = TrainingContext(),
    ) -> None:
        super().__init__(context=context)
        self.config, self.training = config, training

    def fit(self, train_windows: Windows, val: Windows, *, seed: int) -> None:
        """Train the classifier on windows, keep the epoch of the best validation accuracy.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            seed: Seed of weights, batches and noise.
        """
        network = TaskClassifier(
            config=self.config,
            observation_dim=train_windows.initial.shape[1],
            task_count=len(train_windows.taxonomy.tasks),
        )
        network.reset(generator_for("cpu", seed, 2))
        network.to(self.device)
        objective = ClassifierObjective(
            classifier=network, train=train_windows, val=val, config=self.training
        )
        if self.config.centre:
            network.mean.copy_(objective.observations.mean)
        self.result = self.context.train(
            self.title,
            objective,
            self.training,
            seed=seed,
            settings=[train_windows.horizon, self.config.model_dump(), self.training.model_dump()],
        )
        self.network = network

    @torch.inference_mode()
    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Log p(task | observations), [N, |C|].

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        network = self.ready()
        logits = network(*self.observations(queries, network.fc1.in_features))
        return np.asarray(logits.float().log_softmax(dim=1).cpu().numpy())

    def predict(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks where there are any, else the likeliest ones, [N]."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.log_probabilities(queries).argmax(axis=1), dtype=np.int64)

    def build(self, tensors: Mapping[str, Tensor]) -> TaskClassifier:
        """A classifier for weights of its widths."""
        return TaskClassifier(
            config=self.config,
            observation_dim=tensors["fc1.weight"].shape[1],
            task_count=tensors["fc4.weight"].shape[0],
        )
