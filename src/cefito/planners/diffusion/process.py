"""The schedule of noise and the sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["Diffusion"]

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
