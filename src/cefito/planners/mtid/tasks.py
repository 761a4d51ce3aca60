"""MTID's own task classifier: its network, how it is trained, its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.classifier import TaskNetwork
from cefito.field.predictor import Dropout, normalise
from cefito.planners.base import Shape
from cefito.planners.context import TrainingContext
from cefito.planners.mtid.settings import MtidClassifierConfig
from cefito.planners.network import learned, train_network
from cefito.planners.shared.post_norm import PostNormLayer
from cefito.planners.shared.task_model import TaskPredictor
from cefito.runtime import Stream
from cefito.training.classifier_loss import ClassifierLoss
from cefito.training.trainer import TrainingResult

__all__ = ["MtidTaskModel", "MtidTaskNetwork"]


class MtidTaskNetwork(TaskNetwork):
    """A transformer over the two observations, their mean, and two hidden layers.

    Args:
        config: Sizes and options.
        observation_dim: E.
        task_count: C.
    """

    def __init__(
        self, *, config: MtidClassifierConfig, observation_dim: int, task_count: int
    ) -> None:
        super().__init__(observation_dim=observation_dim, dropout=config.dropout)
        self.config, width = config, config.width
        self.embed = nn.Linear(observation_dim, width)
        self.layers = nn.ModuleList(
            PostNormLayer(width, config.heads, config.feedforward, F.relu)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, config.hidden)
        self.fc3 = nn.Linear(config.hidden, task_count)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform, zero biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, initial: Tensor, goal: Tensor, *, dropout: Dropout | None = None) -> Tensor:
        """Logits of the tasks, [B, E] and [B, E] → [B, C]."""
        drop = dropout or (lambda x: x)
        x = torch.stack([initial, goal], dim=1) - self.mean
        if self.config.normalise:
            x = normalise(x)
        x = drop(F.relu(self.embed(x)))
        for layer in self.layers:
            x = layer(x, drop)
        x = F.relu(self.fc1(self.norm(x.mean(dim=1))))
        return self.fc3(F.relu(self.fc2(x)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class MtidTaskModel(TaskPredictor[MtidTaskNetwork]):
    """A trained task classifier of MTID."""

    title: ClassVar[str] = "MTID task classifier"
    file: ClassVar[str] = "mtid_classifier.safetensors"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: MtidClassifierConfig,
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train the classifier on windows, keep the epoch of the best validation accuracy.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network and how it is trained.
            seed: Seed of weights, batches and noise.
            context: Where it is trained.

        Raises:
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        network = MtidTaskNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            task_count=len(train.taxonomy.tasks),
        )
        result = train_network(
            network,
            lambda network: ClassifierLoss(
                classifier=network, train=train, val=val, config=config.training
            ),
            name=cls.title,
            training=config.training,
            stream=Stream.MTID_TASKS,
            seed=seed,
            settings=[train.horizon, config.model_dump()],
            context=context.part("mtid_classifier"),
            centre=config.centre,
        )
        return cls(network), result

    @classmethod
    def size(cls, config: MtidClassifierConfig, shape: Shape) -> int:
        """Learned numbers of a classifier for data of a shape."""
        return learned(
            MtidTaskNetwork(
                config=config, observation_dim=shape.observation_dim, task_count=shape.tasks
            )
        )

    @classmethod
    def load(
        cls, folder: Path, *, config: MtidClassifierConfig, device: torch.device | str = "cpu"
    ) -> Self:
        """The classifier that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))


def _build(config: MtidClassifierConfig, tensors: Mapping[str, Tensor]) -> MtidTaskNetwork:
    """A network for weights of its sizes."""
    (observation_dim,), (task_count,) = tensors["mean"].shape, tensors["fc3.bias"].shape
    return MtidTaskNetwork(config=config, observation_dim=observation_dim, task_count=task_count)
