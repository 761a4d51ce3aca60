"""The temporal U-Net."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import positions
from cefito.planners.shared.layers import draw_layers


class TemporalUNet(nn.Module):
    """A U-Net over time with two residual blocks per level.

    Time shrinks by one from level to level, by convolutions of width 2 and stride 1, and grows back
    likewise. Each level going up takes the features of the level of the same length going down
    beside its own; with `last_skip` the last unit does, too. `inside` makes a module for a residual
    block of so many channels, applied between its convolutions to features [B, width, T] and a
    latent.
    """

    times: Tensor

    def __init__(
        self,
        *,
        columns: int,
        widths: tuple[int, ...],
        steps: int,
        last_skip: bool = True,
        inside: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        first, last = widths[0], widths[-1]
        self.last_skip = last_skip
        self.register_buffer("times", positions(steps + 1, first), persistent=False)
        self.time = nn.Sequential(
            nn.Linear(first, 4 * first), nn.Mish(), nn.Linear(4 * first, first), nn.Mish()
        )
        self.down = nn.ModuleList(
            _Level(*pair, first, inside) for pair in pairwise((columns, *widths))
        )
        self.shrink = nn.ModuleList(nn.Conv1d(width, width, 2) for width in widths[:-1])
        self.middle = _Level(last, last, first, inside)
        self.up = nn.ModuleList(
            _Level(2 * deep, shallow, first, inside)
            for shallow, deep in reversed(list(pairwise(widths)))
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose1d(width, width, 2) for width in reversed(widths[:-1])
        )
        self.end = nn.Sequential(
            _Unit(2 * first if last_skip else first, first), nn.Conv1d(first, columns, 1)
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform, zero biases.

        The second convolution of every block is zero. So is the last layer (not published): as
        almost all of a plan is zero, training from random weights takes several times as long.
        """
        draw_layers(self, generator)
        for module in self.modules():
            if isinstance(module, _Block):
                nn.init.zeros_(module.second.convolution.weight)
        for parameter in self.end[-1].parameters():
            nn.init.zeros_(parameter)

    @staticmethod
    def blocks(levels: int) -> int:
        """Residual blocks of a U-Net of so many levels."""
        return 4 * levels  # two going down and two in the middle or going up

    def forward(self, matrix: Tensor, times: Tensor, latents: Tensor | None = None) -> Tensor:
        """[B, T, D] at times [B] → [B, T, D]; latents of N modules inside are [B, N, W]."""
        time = self.time(self.times[times])
        inside = iter(latents.unbind(1) if latents is not None else ())
        x, left = matrix.transpose(1, 2), []
        for place, level in enumerate(self.down):
            x = level(x if place == 0 else self.shrink[place - 1](x), time, inside)
            left.append(x)
        x = self.middle(x, time, inside)
        for level, grow in zip(self.up, self.grow, strict=True):
            x = grow(level(torch.cat([x, left.pop()], dim=1), time, inside))
        if self.last_skip:
            x = torch.cat([x, left.pop()], dim=1)
        return self.end(x).transpose(1, 2)  # type: ignore[no-any-return]


class _Unit(nn.Module):
    """Convolution of width 3, group norm, Mish."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inputs, width, 3, padding=1)
        # published: 32 groups at widths of 256 and more; narrower levels keep 8 channels a group
        self.norm = nn.GroupNorm(math.gcd(32, width // 8), width)

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(self.norm(self.convolution(x)))


class _Block(nn.Module):
    """Two units with the time added between them, and a path past them."""

    def __init__(
        self, inputs: int, width: int, time: int, inside: Callable[[int], nn.Module] | None
    ) -> None:
        super().__init__()
        self.first, self.second = _Unit(inputs, width), _Unit(width, width)
        self.time = nn.Linear(time, width)
        self.past = nn.Identity() if inputs == width else nn.Conv1d(inputs, width, 1)
        self.inside = inside(width) if inside is not None else None

    def forward(self, x: Tensor, time: Tensor, latents: Iterator[Tensor]) -> Tensor:
        between = self.first(x) + self.time(time)[:, :, None]
        if self.inside is not None:
            between = self.inside(between, next(latents))
        return self.second(between) + self.past(x)  # type: ignore[no-any-return]


class _Level(nn.Module):
    """Two residual blocks."""

    def __init__(
        self, inputs: int, width: int, time: int, inside: Callable[[int], nn.Module] | None
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [_Block(inputs, width, time, inside), _Block(width, width, time, inside)]
        )

    def forward(self, x: Tensor, time: Tensor, latents: Iterator[Tensor]) -> Tensor:
        for block in self.blocks:
            x = block(x, time, latents)
        return x
