"""MTID: masked temporal interpolation diffusion (Zhou et al., ICLR 2025).

Reimplemented from its published description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.field.classifier import TaskNetwork
from cefito.field.layers import Dropout
from cefito.field.predictor import normalise
from cefito.planners.base import Shape
from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.mtid.network import MtidNetwork
from cefito.planners.mtid.settings import MtidClassifierConfig, MtidSettings
from cefito.planners.shared.layers import PostNormLayer, draw_layers, keep
from cefito.planners.shared.task_model import TaskModel, TaskPredictor


class MtidTaskNetwork(TaskNetwork):
    """A transformer over the two observations, their mean, and two hidden layers."""

    def __init__(self, config: MtidClassifierConfig, shape: Shape) -> None:
        super().__init__(observation_dim=shape.observation_dim, dropout=config.dropout)
        self.config, width = config, config.width
        self.embed = nn.Linear(shape.observation_dim, width)
        self.layers = nn.ModuleList(
            PostNormLayer(width, config.heads, config.feedforward, F.relu)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, config.hidden)
        self.fc3 = nn.Linear(config.hidden, shape.tasks)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform, zero biases."""
        draw_layers(self, generator)

    @override
    def forward(self, initial: Tensor, goal: Tensor, *, dropout: Dropout | None = None) -> Tensor:
        drop = dropout or keep
        x = torch.stack([initial, goal], dim=1) - self.mean  # [B, 2, E]
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
    part: ClassVar[str] = "mtid_classifier"
    stream: ClassVar[int] = 23
    build = MtidTaskNetwork


@dataclass(frozen=True, eq=False, repr=False)
class MtidPlanner(TaskDiffusionPlanner[MtidNetwork]):
    """Plans by diffusion with interpolated latents, as `TaskDiffusionPlanner` does.

    If plans keep to the actions of their task, there may be fewer than `top_k`.
    """

    name = "MTID"
    title = "MTID network"
    part = "mtid"
    stream = 22
    build = MtidNetwork

    @override
    @classmethod
    def predictor(cls, settings: MtidSettings) -> type[TaskPredictor[Any]]:
        return TaskModel if settings.mtid.tasks == "shared" else MtidTaskModel
