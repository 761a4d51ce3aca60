"""The network of PDPP, with all that it needs of the data set to plan."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cefito.errors import ConfigError
from cefito.field.predictor import Dropout, normalise
from cefito.planners.pdpp.diffusion import Diffusion, Projection
from cefito.planners.pdpp.settings import PdppConfig
from cefito.planners.pdpp.unet import TemporalUNet

__all__ = ["BLOCK", "PdppNetwork", "check_horizon"]

BLOCK = 512  # queries denoised at once


class PdppNetwork(nn.Module):
    """The U-Net, what it needs of the data set, and the noise that every plan starts from.

    Args:
        config: Widths, steps, treatment of the observations.
        observation_dim: E.
        task_count: C.
        action_count: K.
        horizon: T.

    Attributes:
        mean: Subtracted from the observations, [E].
        noise: What sampling starts from, the same for every query, [T, K]. So a query has one plan,
            alone or among others.

    Raises:
        ConfigError: More levels than the horizon has steps.
    """

    mean: Tensor
    noise: Tensor

    def __init__(
        self,
        *,
        config: PdppConfig,
        observation_dim: int,
        task_count: int,
        action_count: int,
        horizon: int,
    ) -> None:
        check_horizon(config, horizon)
        super().__init__()
        self.config, self.observation_dim, self.horizon = config, observation_dim, horizon
        self.task_count, self.action_count = task_count, action_count
        self.diffusion = Diffusion(steps=config.steps, sampling=config.sampling)
        self.unet = TemporalUNet(
            columns=task_count + action_count + observation_dim,
            widths=config.widths,
            steps=config.steps,
        )
        self.register_buffer("mean", torch.zeros(observation_dim))
        self.register_buffer("noise", torch.zeros(horizon, action_count))

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noise anew."""
        self.unet.reset(generator)
        self.noise.normal_(generator=generator)

    def projection(
        self, tasks: Tensor, initial: Tensor, goal: Tensor, *, dropout: Dropout | None = None
    ) -> Projection:
        """The projection onto tasks [B] and observations [B, E].

        Args:
            tasks: Task ids.
            initial: Initial observations.
            goal: Goal observations.
            dropout: In training, drops features of the observations.
        """
        x = torch.stack([initial, goal]) - self.mean
        if self.config.normalise:
            x = normalise(x)
        if dropout:
            x = dropout(x)
        return Projection.build(
            tasks,
            x[0],
            x[1],
            task_count=self.task_count,
            action_count=self.action_count,
            horizon=self.horizon,
        )

    def forward(self, matrix: Tensor, times: Tensor) -> Tensor:
        """Predict clean matrices, float32, from projected ones [B, T, C + K + E] at times [B]."""
        return self.unet(matrix, times).float()  # type: ignore[no-any-return]

    def scores(self, tasks: Tensor, initial: Tensor, goal: Tensor) -> Tensor:
        """The sampled action block: a score of each action at each step, [B, T, K].

        Args:
            tasks: Task ids [B].
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
        """
        project = self.projection(tasks, initial, goal)
        start = project.filled(self.noise.expand(len(tasks), -1, -1))
        matrix = self.diffusion.sample(
            lambda x, now: self(x, torch.full((len(x),), now, device=x.device)), start, project
        )
        return matrix[..., project.actions]


def check_horizon(config: PdppConfig, horizon: int) -> None:
    """See that time does not shrink to nothing.

    Raises:
        ConfigError: More levels than the horizon has steps.
    """
    levels = len(config.widths)
    if horizon < levels:
        raise ConfigError(
            f"horizon {horizon}: PDPP with {levels} levels needs a horizon of at least {levels}, "
            "for each is one step shorter than the one above. Give pdpp.widths no more than "
            f"{horizon} widths.",
            setting="pdpp.widths",
        )
