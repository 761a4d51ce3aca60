"""The network of MTID."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.planners.diffusion.matrix import OBSERVATION, Layout, Projection, task_block
from cefito.planners.diffusion.network import DiffusionNetwork, check_horizon
from cefito.planners.diffusion.unet import TemporalUNet
from cefito.planners.mtid.latents import Interpolation, LatentAttention
from cefito.planners.mtid.settings import MtidConfig

__all__ = ["MtidNetwork", "check_mtid_horizon", "gradient_weights", "task_actions"]


class MtidNetwork(DiffusionNetwork):
    """Denoises PDPP's matrices, with a latent for each residual block of the U-Net.

    Args:
        config: Sizes and options.
        observation_dim: E.
        task_count: C.
        action_count: K.
        horizon: T.

    Attributes:
        task_actions: Where plans keep to actions of their task: which ones these are, bool [C, K].

    Raises:
        ConfigError: More levels than the horizon has steps.
    """

    config: MtidConfig
    task_actions: Tensor

    def __init__(
        self,
        *,
        config: MtidConfig,
        observation_dim: int,
        task_count: int,
        action_count: int,
        horizon: int,
    ) -> None:
        check_mtid_horizon(config, horizon)
        layout = Layout(
            before=(task_block(task_count),),
            action_count=action_count,
            observation_dim=observation_dim,
            horizon=horizon,
        )
        super().__init__(
            config=config,
            layout=layout,
            last_skip=False,  # the published sizes of MTID, as those of KEPP, are without it
            inside=partial(LatentAttention, dim=observation_dim) if config.interpolation else None,
        )
        self.task_count = task_count
        self.interpolation = None
        if config.interpolation:
            self.interpolation = Interpolation(
                dim=observation_dim,
                count=TemporalUNet.blocks(len(config.widths)),
                encodings=config.encodings,
                layers=config.layers,
                heads=config.heads,
                feedforward=config.feedforward,
                dropout=config.latent_dropout,
            )
        if config.mask:
            self.register_buffer(
                "task_actions", torch.ones(task_count, action_count, dtype=torch.bool)
            )

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noise anew."""
        super().reset(generator)
        if self.interpolation is not None:
            self.interpolation.reset(generator)

    def allowed(self, *blocks: Tensor) -> Tensor | None:
        """The actions of each plan's task [B, 1, K], where plans keep to them."""
        (tasks,) = blocks
        return self.task_actions[tasks][:, None] if self.config.mask else None

    def latents(
        self, project: Projection, *, generator: torch.Generator | None = None
    ) -> Tensor | None:
        """The latents of plans [B, N, E], of the observations that are given; None without any."""
        if self.interpolation is None:
            return None
        observations = project.given[..., self.layout.columns_of(OBSERVATION)]
        latents: Tensor = self.interpolation(
            observations[:, 0], observations[:, -1], generator=generator
        )
        return latents


def gradient_weights(horizon: int, ends: float) -> Tensor:
    """Weights of rows, in a straight line from that of the ends to 1 in the middle, [T]."""
    place = torch.arange(horizon)
    inwards = torch.minimum(place, horizon - 1 - place).float()
    return ends + (1 - ends) * inwards / max((horizon - 1) // 2, 1)


def task_actions(
    tasks: Sequence[int] | NDArray[np.int64],
    actions: NDArray[np.int64],
    *,
    task_count: int,
    action_count: int,
) -> Tensor:
    """The actions that each task has in training windows, bool [C, K].

    A task that has no window has all of them, for nothing is known of it.

    Args:
        tasks: Task ids [N].
        actions: Action ids [N, T].
        task_count: C.
        action_count: K.
    """
    known = np.zeros((task_count, action_count), dtype=bool)
    known[np.asarray(tasks)[:, None], actions] = True
    known[~known.any(axis=1)] = True
    return torch.from_numpy(known)


def check_mtid_horizon(config: MtidConfig, horizon: int) -> None:
    """As `check_horizon`, of MTID."""
    check_horizon(config, horizon, method="MTID", section="mtid")
