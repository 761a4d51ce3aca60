"""Predicting the task of a query: the classifier with its training, saving and loading."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.field.classifier import TaskClassifier
from cefito.field.config import ClassifierConfig
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.progress import Progress, silent
from cefito.training.checkpoint import load_weights
from cefito.training.config import ClassifierTrainingConfig
from cefito.training.distributed import Processes
from cefito.training.objectives import ClassifierObjective
from cefito.training.trainer import TrainingResult, generator_for, train

__all__ = ["TaskModel"]

_FILE = "classifier.safetensors"


class TaskModel:
    """A task classifier that can be fitted, saved and loaded.

    Args:
        config: The network.
        training: How it is trained.
        device: Where it runs.
        folder: Where checkpoints and metrics of the training go; None keeps none.
        progress: Shows progress of the training.
        group: The processes that train together.
    """

    def __init__(self, *, config: ClassifierConfig, training: ClassifierTrainingConfig,
                 device: torch.device | str = "cpu", folder: Path | None = None, progress: Progress = silent,
                 group: Processes | None = None) -> None:
        self.config, self.training, self.device = config, training, torch.device(device)
        self.folder, self.progress, self.group = folder, progress, group or Processes()
        self.classifier: TaskClassifier | None = None
        self.result: TrainingResult | None = None

    @property
    def fitted(self) -> bool:
        """Whether there is a classifier to predict with."""
        return self.classifier is not None

    def fit(self, train_windows: Windows, val: Windows, *, seed: int, key: str = "") -> None:
        """Train the classifier on windows, keep the epoch of the best validation accuracy.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            seed: Seed of weights, batches and noise.
            key: What else determines the result (the data set's fingerprint); guards checkpoints.
        """
        classifier = TaskClassifier(config=self.config, observation_dim=train_windows.initial.shape[1],
                                    task_count=len(train_windows.taxonomy.tasks))
        classifier.reset(generator_for("cpu", seed, 2))
        classifier.to(self.device)
        objective = ClassifierObjective(classifier=classifier, train=train_windows, val=val, config=self.training)
        if self.config.centre:
            classifier.mean.copy_(objective.observations.mean)
        settings = [self.config.model_dump(), self.training.model_dump()]
        self.result = train(objective, optimiser=self.training.optimiser, ema=self.training.ema,
                            stopping=self.training.stopping, seed=seed, folder=self.folder, label="task classifier",
                            key=json.dumps(["classifier", key, seed, train_windows.horizon, settings]),
                            progress=self.progress, group=self.group)
        self.classifier = classifier

    @torch.inference_mode()
    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Log p(task | observations), [N, |C|].

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        if self.classifier is None:
            raise RunError("the task classifier has not been trained; call fit or load first.")
        expected = self.classifier.fc1.in_features
        if queries.initial.shape[1] != expected:
            raise RunError(f"observations have {queries.initial.shape[1]} features; this run was trained on {expected}.")
        logits = self.classifier(torch.from_numpy(queries.initial).to(self.device),
                                 torch.from_numpy(queries.goal).to(self.device))
        return np.asarray(logits.float().log_softmax(dim=1).cpu().numpy())

    def predict(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks where there are any, else the likeliest ones, [N]."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.log_probabilities(queries).argmax(axis=1), dtype=np.int64)

    def save(self, folder: Path) -> None:
        """Write the weights."""
        if self.classifier is None:
            raise RunError("the task classifier has not been trained; there is nothing to save.")
        write_tensors(folder / _FILE, self.classifier.state_dict())

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        tensors, _ = load_tensors(folder / _FILE, "pt", "Train the run again.", RunError)
        if "fc1.weight" not in tensors or "fc4.weight" not in tensors:
            raise RunError(f"{folder / _FILE}: holds no task classifier. Train the run again.")
        classifier = TaskClassifier(config=self.config, observation_dim=tensors["fc1.weight"].shape[1],
                                    task_count=tensors["fc4.weight"].shape[0])
        load_weights(classifier, tensors, str(folder / _FILE))
        self.classifier = classifier.to(self.device).eval()
