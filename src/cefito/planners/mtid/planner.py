"""MTID: masked temporal interpolation diffusion (Zhou et al., ICLR 2025).

Reimplemented from its published description.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Shape
from cefito.planners.diffusion.network import (
    DiffusionNetwork,
    Projection,
    TemporalUNet,
    task_layout,
)
from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.mtid.method import MtidConfig
from cefito.planners.shared.layers import PostNormLayer, draw_layers, dropping


class Interpolation(nn.Module):
    """A latent vector for each residual block, between the initial observation and the goal.

    Both observations are encoded by the same maps, mixed in a learned share for each latent, and
    the latents of a query attend to each other (in the released code, to other queries' latents).
    The maps are convolutions of width 3 over a single position, of which only the middle tap acts.
    There are three, as published; the middle one is repeated, or skipped, for `encodings` maps.
    """

    def __init__(self, config: MtidConfig, dim: int) -> None:
        super().__init__()
        self.encodings, self.dropout = config.encodings, config.latent_dropout
        self.encoders = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding=1) for _ in range(3))
        self.share = nn.Linear(1, TemporalUNet.blocks(len(config.widths)))
        heads = max(number for number in range(1, min(config.heads, dim) + 1) if dim % number == 0)
        self.layers = nn.ModuleList(
            PostNormLayer(dim, heads, config.feedforward, F.relu) for _ in range(config.layers)
        )

    def encoded(self, x: Tensor) -> Tensor:
        """Encode observations, [..., E] → [..., E]."""
        first, between, last = self.encoders
        for encoder in (first, *[between] * (self.encodings - 2), last):
            x = F.relu(F.linear(x, encoder.weight[:, :, 1], encoder.bias))  # type: ignore[index, arg-type]
        return x

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Initial and goal observations, each [B, E] → the latents of B queries [B, N, E]."""
        drop = dropping(self.dropout, generator)
        # the goal's share in each latent, α [N, 1]
        share = torch.sigmoid(self.share(self.share.weight.new_ones(1)))[:, None]
        start, end = self.encoded(torch.stack([initial, goal]))[:, :, None]
        mixed: Tensor = (1 - share) * start + share * end  # [B, N, E]
        x = mixed
        for layer in self.layers:
            x = layer(x, drop)
        return mixed + x


class LatentAttention(nn.Module):
    """Features attend to a latent [B, E], inside a residual block.

    There is a single key, so attention adds one projected vector at every position. The projections
    of queries and keys are never learned; they are held because published sizes count them.
    """

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.latent = nn.Linear(dim, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, latent: Tensor) -> Tensor:
        """Features [B, c, T] and latents [B, E] → features [B, c, T].

        With z = x + attention they become x + LN(z) + MLP(LN'(z)); that there are two norms is
        concluded from the published sizes.
        """
        said = self.out(self.value(self.latent(latent)))
        attended = (x + said[:, :, None]).transpose(1, 2)
        added = self.norm1(attended) + self.fc2(F.mish(self.fc1(self.norm2(attended))))
        return x + added.transpose(1, 2)  # type: ignore[no-any-return]


class MtidNetwork(DiffusionNetwork):
    """Denoises PDPP's matrices, with a latent for each residual block of the U-Net."""

    config: MtidConfig
    task_actions: Tensor  # [C, K], if plans keep to the actions of their task

    def __init__(self, config: MtidConfig, shape: Shape) -> None:
        dim = shape.observation_dim
        super().__init__(
            config=config,
            layout=task_layout(shape),
            last_skip=False,  # the published sizes of MTID and KEPP are without it
            inside=partial(LatentAttention, dim=dim),
        )
        self.interpolation = Interpolation(config, dim)
        if config.mask:
            allowed = torch.ones(shape.tasks, shape.actions, dtype=torch.bool)
            self.register_buffer("task_actions", allowed)

    @override
    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        draw_layers(self.interpolation, generator)

    @override
    def row_weights(self) -> Tensor:
        # falling linearly from `ends` at the ends to 1 in the middle [T]
        place, ends = torch.arange(self.horizon), self.config.ends
        inwards = torch.minimum(place, self.horizon - 1 - place).float()
        return ends + (1 - ends) * inwards / max((self.horizon - 1) // 2, 1)

    def observe(self, train: Windows) -> None:
        """Take the actions of each task from training windows."""
        if self.config.mask:
            tasks, actions = self.task_actions.shape
            self.task_actions.copy_(task_actions(train.tasks, train.actions, tasks, actions))

    @override
    def allowed(self, *blocks: Tensor) -> Tensor | None:
        (tasks,) = blocks
        return self.task_actions[tasks][:, None] if self.config.mask else None  # [B, 1, K]

    @override
    def latents(self, project: Projection, *, generator: torch.Generator | None = None) -> Tensor:
        observations = project.given[..., self.layout.actions.stop :]  # the observations [B, T, E]
        latents: Tensor = self.interpolation(
            observations[:, 0], observations[:, -1], generator=generator
        )
        return latents


def task_actions(
    tasks: NDArray[np.int64], actions: NDArray[np.int64], task_count: int, action_count: int
) -> Tensor:
    """The actions of each task in training windows, bool [C, K]; all for a task without windows.

    Args:
        tasks: Tasks of training windows [N].
        actions: Their actions [N, T].
        task_count: C.
        action_count: K.
    """
    shown = np.zeros((task_count, action_count), dtype=bool)
    shown[np.asarray(tasks)[:, None], actions] = True
    shown[~shown.any(axis=1)] = True
    return torch.from_numpy(shown)


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
