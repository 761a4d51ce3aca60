"""The network of MTID."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Shape
from cefito.planners.diffusion.matrix import OBSERVATION, Projection, task_layout
from cefito.planners.diffusion.network import DiffusionNetwork
from cefito.planners.diffusion.unet import TemporalUNet
from cefito.planners.mtid.latents import Interpolation, LatentAttention
from cefito.planners.mtid.settings import MtidConfig

__all__ = ["MtidNetwork", "gradient_weights", "task_actions"]


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
            inside=partial(LatentAttention, dim=dim) if config.interpolation else None,
        )
        self.interpolation = None
        if config.interpolation:
            self.interpolation = Interpolation(
                dim=dim,
                count=TemporalUNet.blocks(len(config.widths)),
                encodings=config.encodings,
                layers=config.layers,
                heads=config.heads,
                feedforward=config.feedforward,
                dropout=config.latent_dropout,
            )
        if config.mask:
            known = torch.ones(shape.tasks, shape.actions, dtype=torch.bool)
            self.register_buffer("task_actions", known)

    @override
    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        if self.interpolation is not None:
            self.interpolation.reset(generator)

    @override
    def row_weights(self) -> Tensor:
        return gradient_weights(self.horizon, self.config.ends)

    @override
    def observe(self, train: Windows) -> None:
        if self.config.mask:
            tasks, actions = self.task_actions.shape
            self.task_actions.copy_(task_actions(train.tasks, train.actions, tasks, actions))

    @override
    def allowed(self, *blocks: Tensor) -> Tensor | None:
        (tasks,) = blocks
        return self.task_actions[tasks][:, None] if self.config.mask else None  # [B, 1, K]

    @override
    def latents(
        self, project: Projection, *, generator: torch.Generator | None = None
    ) -> Tensor | None:
        if self.interpolation is None:
            return None
        given = project.given[..., self.layout.columns_of(OBSERVATION)]
        latents: Tensor = self.interpolation(given[:, 0], given[:, -1], generator=generator)
        return latents


def gradient_weights(horizon: int, ends: float) -> Tensor:
    """Weights of rows, falling linearly from `ends` at the ends to 1 in the middle, [T]."""
    place = torch.arange(horizon)
    inwards = torch.minimum(place, horizon - 1 - place).float()
    return ends + (1 - ends) * inwards / max((horizon - 1) // 2, 1)


def task_actions(
    tasks: NDArray[np.int64], actions: NDArray[np.int64], task_count: int, action_count: int
) -> Tensor:
    """The actions of each task in training windows, bool [C, K]; all for a task without windows."""
    known = np.zeros((task_count, action_count), dtype=bool)
    known[np.asarray(tasks)[:, None], actions] = True
    known[~known.any(axis=1)] = True
    return torch.from_numpy(known)
