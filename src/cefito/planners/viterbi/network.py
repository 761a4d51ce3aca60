"""The network of ViterbiPlanNet (arXiv 2603.04265): emissions of actions before the layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import normalise
from cefito.planners.base import Shape
from cefito.planners.shared.layers import PostNormLayer, draw_layers, dropping
from cefito.planners.viterbi.settings import ViterbiConfig

_LOG_TEMPERATURE = math.log(1 / 0.07)  # initial logarithm of the factor of the cosines (published)


@dataclass(frozen=True)
class ViterbiOutputs:
    """Outputs of the network for B queries."""

    emissions: Tensor  # log σ of each step's logits, float32 [B, T, K]
    states: Tensor  # encoded initial and goal observation [B, 2, D]
    tasks: Tensor  # logits, float32 [B, C]; no column without a task head


class ViterbiNetwork(nn.Module):
    """Encoder of observations, emission network, task head, encoder of descriptions.

    The encoder is linear (two layers), the emission network a post-norm transformer layer over the
    two encoded observations and an MLP on both of its outputs. The task head and the descriptions
    shape the encoder in training, and play no part in planning.
    """

    mean: Tensor
    counts: Tensor

    def __init__(self, config: ViterbiConfig, shape: Shape) -> None:
        super().__init__()
        self.config, self.horizon = config, shape.horizon
        width, actions = config.width, shape.actions
        self.encoder = nn.Sequential(
            nn.Linear(shape.observation_dim, config.hidden), nn.Linear(config.hidden, width)
        )
        self.layer = PostNormLayer(width, config.heads, config.feedforward, F.gelu)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(2 * width, 2 * width)
        self.emission = nn.Linear(2 * width, shape.horizon * actions)
        self.task: nn.Sequential | None = None
        if config.task:
            self.task = nn.Sequential(
                nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, shape.tasks)
            )
        self.description: nn.Linear | None = None
        if shape.text_dim:
            self.description = nn.Linear(shape.text_dim, width, bias=False)
        free = config.aligned_with == "free"
        self.free = nn.Parameter(torch.zeros(actions, 2, width)) if free else None
        if shape.text_dim or free:
            self.log_temperature = nn.Parameter(torch.tensor(_LOG_TEMPERATURE))
        self.register_buffer("mean", torch.zeros(shape.observation_dim))
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases, normal free vectors."""
        draw_layers(self, generator)
        if self.free is not None:
            nn.init.normal_(self.free, generator=generator)

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> ViterbiOutputs:
        """Emissions, states and task logits of initial and goal observations, each [B, E]."""
        drop = dropping(self.config.dropout, generator)
        x = torch.stack([initial, goal], dim=1)  # [B, 2, E]
        if self.config.centre:
            x = x - self.mean
        if self.config.normalise:
            x = normalise(x)
        states = self.encoder(dropping(self.config.input_dropout, generator)(x))  # [B, 2, D]
        tokens = self.norm(self.layer(states, drop))
        hidden = drop(torch.sigmoid(self.fc(tokens.flatten(1))))
        emissions = F.logsigmoid(self.emission(hidden).float()).unflatten(1, (self.horizon, -1))
        tasks = emissions.new_zeros(len(x), 0)
        if self.task is not None:
            tasks = self.task(states.flatten(1)).float()
        return ViterbiOutputs(emissions=emissions, states=states, tasks=tasks)

    def alignment(
        self,
        states: Tensor,
        descriptions: Tensor | None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Logits [B, 2, K]: learned factor × mean cosine of a state to an action's descriptions.

        The initial state [B, 2, D] is compared with the three descriptions before the action, the
        goal with the three after it, [K, 6, W]; None compares with the free vectors. The logarithm
        of the factor is learned.
        """
        if descriptions is None:
            assert self.free is not None
            means = F.normalize(self.free.float(), dim=-1)
        else:
            assert self.description is not None
            drop = dropping(self.config.input_dropout, generator)
            encoded = self.description(drop(descriptions)).float().unflatten(1, (2, 3))
            norms = torch.linalg.vector_norm(encoded, dim=-1).clamp_min(1e-12)  # [K, 2, 3]
            # mean of unit vectors as one product: (1 / 3‖x_i‖)_i (x_i)_i, [1, 3] × [3, D]
            means = ((1 / (3 * norms)).unsqueeze(-2) @ encoded).squeeze(-2)
        cosines = torch.einsum("bed,ked->bek", F.normalize(states.float(), dim=-1), means)
        return self.log_temperature.exp() * cosines.float()
