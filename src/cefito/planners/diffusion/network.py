"""The network of a diffusion over plans, with all that it needs of the data set to plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cefito.errors import ConfigError
from cefito.field.predictor import Dropout, normalise
from cefito.planners.diffusion.matrix import Layout, Projection
from cefito.planners.diffusion.process import Diffusion
from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.diffusion.unet import TemporalUNet

__all__ = ["BLOCK", "DiffusionNetwork", "check_horizon"]

BLOCK = 512  # queries denoised at once


class DiffusionNetwork(nn.Module):
    """The U-Net, what it needs of the data set, and the noise that every plan starts from.

    Wherever something is known of plans (`known`), it is what the layout's given blocks are filled
    from, in their order, [B, …] each; then the initial observations and the goals, [B, E] each.

    Args:
        config: Widths, steps, treatment of the observations.
        layout: The blocks of the matrices.
        last_skip: As of `TemporalUNet`.
        inside: As of `TemporalUNet`; where there is something, `latents` has to be given, too.

    Attributes:
        mean: Subtracted from the observations, [E].
        noise: What sampling starts from, the same for every query, [T, K]. So a query has one plan,
            alone or among others.
    """

    mean: Tensor
    noise: Tensor

    def __init__(
        self,
        *,
        config: DiffusionConfig,
        layout: Layout,
        last_skip: bool = True,
        inside: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.config, self.layout = config, layout
        self.diffusion = Diffusion(steps=config.steps, sampling=config.sampling)
        self.unet = TemporalUNet(
            columns=layout.columns,
            widths=config.widths,
            steps=config.steps,
            last_skip=last_skip,
            inside=inside,
        )
        self.register_buffer("mean", torch.zeros(layout.observation_dim))
        self.register_buffer("noise", torch.zeros(layout.horizon, layout.action_count))

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return self.layout.horizon

    @property
    def action_count(self) -> int:
        """K."""
        return self.layout.action_count

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.layout.observation_dim

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noise anew."""
        self.unet.reset(generator)
        self.noise.normal_(generator=generator)

    def projection(self, *known: Tensor, dropout: Dropout | None = None) -> Projection:
        """The projection onto what is known of plans.

        Args:
            known: As above.
            dropout: In training, drops features of the observations.
        """
        *blocks, initial, goal = known
        x = torch.stack([initial, goal]) - self.mean
        if self.config.normalise:
            x = normalise(x)
        if dropout:
            x = dropout(x)
        return self.layout.projection(*blocks, x[0], x[1], allowed=self.allowed(*blocks))

    def allowed(self, *blocks: Tensor) -> Tensor | None:  # noqa: ARG002
        """Entries of the action block that are predicted; by default all of the predicted rows.

        Args:
            blocks: What the given blocks are filled from.

        Returns:
            Bool, broadcastable to [B, T, K]; the others are given as zeros.
        """
        return None

    def latents(
        self,
        project: Projection,  # noqa: ARG002
        *,
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """For what is added inside the U-Net's blocks: a vector for each, [B, N, W].

        By default there is nothing.

        Args:
            project: What is given of the plans.
            generator: In training, the source of dropout.
        """
        return None

    def forward(self, matrix: Tensor, times: Tensor, latents: Tensor | None = None) -> Tensor:
        """Predict clean matrices, float32, from projected ones [B, T, D] at times [B]."""
        return self.unet(matrix, times, latents).float()  # type: ignore[no-any-return]

    def scores(self, *known: Tensor) -> Tensor:
        """The sampled action block: a score of each action at each step, [B, T, K].

        It is minus infinity for actions that are not allowed, and zero in rows that are not
        predicted.

        Args:
            known: As above.
        """
        project = self.projection(*known)
        latents = self.latents(project)
        start = project.filled(self.noise.expand(len(project.given), -1, -1))
        matrix = self.diffusion.sample(
            lambda x, now: self(x, torch.full((len(x),), now, device=x.device), latents),
            start,
            project,
        )
        scores, allowed = matrix[..., project.actions], self.allowed(*known[:-2])
        return scores if allowed is None else scores.where(allowed, -torch.inf)


def check_horizon(config: DiffusionConfig, horizon: int, *, method: str, section: str) -> None:
    """See that time does not shrink to nothing.

    Args:
        config: Of the network.
        horizon: T.
        method: What the method is called in the message.
        section: The preset's section that the configuration is from.

    Raises:
        ConfigError: More levels than the horizon has steps.
    """
    levels = len(config.widths)
    if horizon < levels:
        raise ConfigError(
            f"horizon {horizon}: {method} with {levels} levels needs a horizon of at least "
            f"{levels}, for each is one step shorter than the one above. Give {section}.widths no "
            f"more than {horizon} widths.",
            setting=f"{section}.widths",
        )
