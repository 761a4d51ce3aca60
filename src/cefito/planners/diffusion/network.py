"""The network of a diffusion over plans, with all that planning needs of the data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.field.layers import Dropout
from cefito.field.predictor import normalise
from cefito.planners.diffusion.matrix import Layout, Projection
from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.diffusion.unet import TemporalUNet

_CLOSEST = 0.999  # most of the signal's variance that one diffusion step may take
_OFFSET = 0.008  # of the cosine schedule


class Diffusion:
    """Gaussian diffusion that predicts the clean matrix: cosine schedule, deterministic sampler.

    Times count from 0, the clean matrix, to `steps`, S, almost pure noise. `times` are the
    sampler's, from S down to 0, `signal` the share of the signal in the variance at each time,
    float64 [S + 1].
    """

    def __init__(self, *, steps: int, sampling: int) -> None:
        self.steps = steps
        self.times = [round(steps * left / sampling) for left in range(sampling, -1, -1)]
        # Nichol and Dhariwal (2021), Eq. 17: f(t) = cos²((t/S + s) / (1 + s) · π/2), each step
        # bounded
        time = torch.arange(steps + 1, dtype=torch.float64) / steps
        angle = (time + _OFFSET) / (1 + _OFFSET) * math.pi / 2
        share = angle.cos().square()
        taken = (1 - share[1:] / share[:-1]).clamp(max=_CLOSEST)
        self.signal = torch.cat([torch.ones(1, dtype=torch.float64), (1 - taken).cumprod(dim=0)])

    def noised(self, clean: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Matrices [B, ...] with noise at given times [B]: √ᾱ · clean + √(1 − ᾱ) · noise."""
        signal = self.signal.to(clean.device)[times].view(-1, *(1,) * (clean.ndim - 1))
        return signal.sqrt().to(clean.dtype) * clean + (1 - signal).sqrt().to(clean.dtype) * noise

    def sample(
        self,
        predict: Callable[[Tensor, int], Tensor],
        noise: Tensor,
        project: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Denoise matrices [B, ...] by DDIM with η = 0 (Song et al. 2021, Eq. 12), unclipped.

        `predict` predicts the clean matrices from noised ones at a time; `project` is applied to
        the noise, to every prediction and after every step.
        """
        x = project(noise)
        for now, after in pairwise(self.times):
            clean = project(predict(x, now))
            here, there = float(self.signal[now]), float(self.signal[after])
            rest = (x - math.sqrt(here) * clean) / math.sqrt(1 - here)
            x = project(math.sqrt(there) * clean + math.sqrt(1 - there) * rest)
        return x


BLOCK = 512  # queries denoised at once


class DiffusionNetwork(nn.Module):
    """The U-Net, the mean observation, and the noise that every plan starts from.

    The arguments `known` are the sources of the layout's given blocks, in their order, [B, ...]
    each; then the initial observations and the goals, [B, E] each. With modules `inside` the U-Net
    a network overrides `latents`, too.
    """

    mean: Tensor  # [E]
    noise: Tensor  # [T, K], the same for every query, which has one plan so

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
        shape = layout.shape
        self.horizon, self.action_count = shape.horizon, shape.actions
        self.register_buffer("mean", torch.zeros(shape.observation_dim))
        self.register_buffer("noise", torch.zeros(shape.horizon, shape.actions))

    def row_weights(self) -> Tensor:
        """Weights of the rows in the loss, [T]: more for the ends."""
        return end_weights(self.horizon, self.config.ends)

    def observe(self, train: Windows) -> None:
        """Take from training windows what planning needs beside weights; here nothing."""

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noise anew."""
        self.unet.reset(generator)
        self.noise.normal_(generator=generator)

    def projection(self, *known: Tensor, dropout: Dropout | None = None) -> Projection:
        """The projection onto the known part of plans; dropout acts on the observations."""
        *blocks, initial, goal = known
        x = torch.stack([initial, goal]) - self.mean
        if self.config.normalise:
            x = normalise(x)
        if dropout:
            x = dropout(x)
        return self.layout.projection(*blocks, x[0], x[1], allowed=self.allowed(*blocks))

    def allowed(self, *blocks: Tensor) -> Tensor | None:  # noqa: ARG002
        """Predicted entries of the action block, broadcastable to [B, T, K]; None for all."""
        return None

    def latents(
        self,
        project: Projection,  # noqa: ARG002
        *,
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """A vector for each module inside the U-Net's blocks, [B, N, W]; by default none."""
        return None

    def forward(self, matrix: Tensor, times: Tensor, latents: Tensor | None = None) -> Tensor:
        """Predict clean matrices, float32, from projected ones [B, T, D] at times [B]."""
        return self.unet(matrix, times, latents).float()  # type: ignore[no-any-return]

    def scores(self, *known: Tensor) -> Tensor:
        """The sampled action block: a score of each action at each step, [B, T, K].

        Minus infinity for actions that are not allowed; zero in rows that are not predicted.
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


def end_weights(horizon: int, ends: float, *, between: float = 1.0) -> Tensor:
    """Weights of the first and the last row, and of the rows between, [T]."""
    weights = torch.full((horizon,), between)
    weights[[0, -1]] = ends
    return weights


def check_horizon(config: DiffusionConfig, horizon: int, *, method: str, section: str) -> None:
    """Refuse a horizon at which time would shrink to nothing."""
    levels = len(config.widths)
    if horizon < levels:
        raise ConfigError(
            f"horizon {horizon}: {method} with {levels} levels needs a horizon of at least "
            f"{levels}, for each is one step shorter than the one above. Give {section}.widths no "
            f"more than {horizon} widths.",
            setting=f"{section}.widths",
        )
