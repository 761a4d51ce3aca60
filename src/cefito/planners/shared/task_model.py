"""Predicting the task of a query: the classifier with its training and files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.field.classifier import TaskClassifier, TaskNetwork
from cefito.field.settings import ClassifierConfig
from cefito.planners.base import Queries, Shape
from cefito.planners.context import TrainingContext
from cefito.planners.network import (
    TrainedNetwork,
    copy_learned,
    finite_outputs,
    learned,
    train_network,
)
from cefito.runtime import Stream
from cefito.settings import Settings
from cefito.training.classifier_loss import ClassifierLoss
from cefito.training.settings import ClassifierTrainingConfig
from cefito.training.trainer import TrainingResult

__all__ = ["ClassifierSettings", "TaskModel", "TaskPredictor"]


class ClassifierSettings(Settings):
    """The sections that every method with a task classifier reads."""

    classifier: ClassifierConfig = ClassifierConfig()
    classifier_training: ClassifierTrainingConfig = ClassifierTrainingConfig()


Network = TypeVar("Network", bound=TaskNetwork)


class TaskPredictor(TrainedNetwork[Network]):
    """A trained network that tells the task of a query."""

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return len(self.network.mean)

    @torch.inference_mode()
    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Log p(task | observations), [N, |C|].

        Raises:
            RunError: Observations of another dimension.
        """
        logits = self.network(*self.observations(queries, self.observation_dim))
        finite_outputs(logits, self.title)
        return np.asarray(logits.float().log_softmax(dim=1).cpu().numpy())

    def predict(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks where there are any, else the likeliest ones, [N]."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.log_probabilities(queries).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class TaskModel(TaskPredictor[TaskClassifier]):
    """A trained task classifier."""

    title: ClassVar[str] = "task classifier"
    file: ClassVar[str] = "classifier.safetensors"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: ClassifierSettings,
        seed: int,
        context: TrainingContext,
        start: Self | None = None,
    ) -> tuple[Self, TrainingResult]:
        """Train the classifier on windows, keep the epoch of the best validation accuracy.

        Args:
            train: Training windows.
            val: Validation windows.
            settings: The network and how it is trained.
            seed: Seed of weights, batches and noise.
            context: Where it is trained.
            start: A classifier of the first of these tasks, to begin with.
        """
        config, training = settings.classifier, settings.classifier_training
        network = TaskClassifier(
            config=config,
            observation_dim=train.initial.shape[1],
            task_count=len(train.taxonomy.tasks),
        )
        result = train_network(
            network,
            lambda network: ClassifierLoss(
                classifier=network, train=train, val=val, config=training
            ),
            name=cls.title,
            training=training,
            stream=Stream.CLASSIFIER,
            seed=seed,
            settings=[train.horizon, config.model_dump(), training.model_dump()],
            context=context.part("classifier"),
            centre=config.centre,
            begin=None if start is None else partial(copy_learned, learned=start.network),
        )
        return cls(network), result

    @classmethod
    def size(cls, config: ClassifierConfig, shape: Shape) -> int:
        """Learned numbers of a classifier for data of a shape."""
        return learned(
            TaskClassifier(
                config=config, observation_dim=shape.observation_dim, task_count=shape.tasks
            )
        )

    @classmethod
    def load(
        cls, folder: Path | str, *, config: ClassifierConfig, device: torch.device | str = "cpu"
    ) -> Self:
        """The classifier that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        folder = Path(folder)
        return cls(
            cls.read(
                folder,
                lambda tensors: TaskClassifier(
                    config=config,
                    observation_dim=tensors["fc1.weight"].shape[1],
                    task_count=tensors["fc4.weight"].shape[0],
                ),
                device=device,
            )
        )

    @property
    def task_count(self) -> int:
        """Tasks that it tells from each other."""
        return self.network.fc4.out_features
