"""The network of a diffusion over plans, with all that planning needs of the data set.

A plan is a matrix over time [T, D], in blocks of columns: given blocks, the actions as one-hot,
observations (initial in row 1, goal in row T, else zero). A projection restores the given part
after every change; only open actions are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.errors import ConfigError
from cefito.field.predictor import normalise, positions
from cefito.planners.base import Shape
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.shared.layers import draw_layers


@dataclass(frozen=True)
class ColumnBlock:
    """Columns whose content is given.

    `fill` makes them from the source for B plans [B, ...]: [B, T, width], or [B, 1, width] if the
    content is the same in every row.
    """

    width: int
    fill: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The blocks of the matrices of a method, from left to right."""

    shape: Shape
    before: tuple[ColumnBlock, ...] = ()  # the given blocks before the actions
    ends_only: bool = False  # only the first and the last action are predicted, others are zero

    @property
    def actions(self) -> slice:
        """The columns of the actions; those of the observation are behind them."""
        first = sum(block.width for block in self.before)
        return slice(first, first + self.shape.actions)

    @property
    def columns(self) -> int:
        """D, the columns of a matrix."""
        return int(self.actions.stop) + self.shape.observation_dim

    def rows(self, device: torch.device | None = None) -> Tensor:
        """The rows whose actions are predicted, bool [T]."""
        rows = torch.full((self.shape.horizon,), not self.ends_only, device=device)
        rows[[0, -1]] = True
        return rows

    def projection(self, *sources: Tensor, allowed: Tensor | None = None) -> Projection:
        """The projection onto the given part of B plans; at T = 1 that has the goal alone.

        `sources` are those of the given blocks, in their order, [B, ...] each; then the initial
        observations and the goals, [B, E] each. Entries of the action block that are not `allowed`,
        bool, broadcastable to [B, T, K], are given as zeros.
        """
        *blocks, initial, goal = sources
        horizon, actions = self.shape.horizon, self.shape.actions
        filled = [
            block.fill(source).to(initial.dtype).expand(-1, horizon, -1)
            for block, source in zip(self.before, blocks, strict=True)
        ]
        behind = initial.new_zeros(len(initial), horizon, actions + self.shape.observation_dim)
        behind[:, 0, actions:] = initial
        behind[:, -1, actions:] = goal
        if self.ends_only:
            rows = self.rows(initial.device)[:, None]
            allowed = rows if allowed is None else allowed & rows
        return Projection(
            given=torch.cat([*filled, behind], dim=2), actions=self.actions, allowed=allowed
        )


@dataclass(frozen=True)
class Projection:
    """The given part of B plans."""

    given: Tensor  # matrices of the given part, zero elsewhere, [B, T, D]
    actions: slice  # the columns of the action block
    allowed: Tensor | None = None  # entries not given, broadcastable to [B, T, K]

    def __call__(self, matrix: Tensor) -> Tensor:
        """The matrices [B, T, D] with the given part restored."""
        return self.filled(matrix[..., self.actions])

    def open(self, actions: Tensor) -> Tensor:
        """An action block [B, T, K], zero at given entries."""
        return actions if self.allowed is None else actions.where(self.allowed, 0)

    def filled(self, actions: Tensor) -> Tensor:
        """The given matrices with this action block [B, T, K], zero at given entries."""
        before, after = self.given[..., : self.actions.start], self.given[..., self.actions.stop :]
        return torch.cat([before, self.open(actions), after], dim=-1)


def task_layout(shape: Shape) -> Layout:
    """The task as one-hot in every row, from task ids [B], then actions and observations."""
    count = shape.tasks
    task = ColumnBlock(count, lambda tasks: F.one_hot(tasks, count)[:, None])
    return Layout(shape=shape, before=(task,))


class TemporalUNet(nn.Module):
    """A U-Net over time with two residual blocks per level.

    Time shrinks by one from level to level, by convolutions of width 2 and stride 1, and grows back
    in the same way. A level going up takes its own features and those of the level of the same
    length going down; with `last_skip` the last unit does this as well. `inside(width)` makes a
    module for a residual block, which is applied between its convolutions to features
    [B, width, T] and a latent.

    Args:
        columns: Width of each step's row.
        widths: Width of each level, from the top.
        steps: Number of steps of the diffusion.
        last_skip: Whether the last unit takes features of the same length going down, too.
        inside: Makes the module inside a residual block of a width; None for none.
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
        """Number of residual blocks of a U-Net, by its number of levels."""
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
        """Matrices [B, ...] with noise at given times [B]: √ᾱ · clean + √(1 − ᾱ) · noise.

        Args:
            clean: Matrices [B, ...].
            noise: Normal noise of the same shape.
            times: Times [B].
        """
        signal = self.signal.to(clean.device)[times].view(-1, *(1,) * (clean.ndim - 1))
        return signal.sqrt().to(clean.dtype) * clean + (1 - signal).sqrt().to(clean.dtype) * noise

    def sample(
        self,
        predict: Callable[[Tensor, int], Tensor],
        noise: Tensor,
        project: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Denoise matrices [B, ...] by DDIM with η = 0 (Song et al. 2021, Eq. 12), unclipped.

        Args:
            predict: Predicts the clean matrices from noised ones at a time.
            noise: Noise to begin with [B, ...].
            project: Applied to the noise, to every prediction and after every step.
        """
        x = project(noise)
        for now, after in pairwise(self.times):
            clean = project(predict(x, now))
            here, there = float(self.signal[now]), float(self.signal[after])
            predicted_noise = (x - math.sqrt(here) * clean) / math.sqrt(1 - here)
            x = project(math.sqrt(there) * clean + math.sqrt(1 - there) * predicted_noise)
        return x


BLOCK = 512  # queries denoised at once


class DiffusionNetwork(nn.Module):
    """The U-Net, the mean observation, and the noise that every plan starts from.

    The arguments `sources` are those of the layout's given blocks, in their order, [B, ...]
    each; then the initial observations and the goals, [B, E] each. With modules `inside` the U-Net
    a network overrides `latents`, too.

    Args:
        config: Sizes and steps.
        layout: Blocks of columns of a plan.
        last_skip: As of `TemporalUNet`.
        inside: As of `TemporalUNet`.
    """

    mean: Tensor  # [E]
    noise: Tensor  # [T, K], the same for every query, so that plans do not depend on chance

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

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noise anew."""
        self.unet.reset(generator)
        self.noise.normal_(generator=generator)

    def projection(self, *sources: Tensor) -> Projection:
        """The projection onto the known part of plans."""
        *blocks, initial, goal = sources
        x = torch.stack([initial, goal]) - self.mean
        if self.config.normalise:
            x = normalise(x)
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

    def scores(self, *sources: Tensor) -> Tensor:
        """The sampled action block: a score of each action at each step, [B, T, K].

        Minus infinity for actions that are not allowed; zero in rows that are not predicted.
        """
        project = self.projection(*sources)
        latents = self.latents(project)
        start = project.filled(self.noise.expand(len(project.given), -1, -1))
        matrix = self.diffusion.sample(
            lambda x, now: self(x, torch.full((len(x),), now, device=x.device), latents),
            start,
            project,
        )
        scores, allowed = matrix[..., project.actions], self.allowed(*sources[:-2])
        return scores if allowed is None else scores.where(allowed, -torch.inf)


def end_weights(horizon: int, ends: float, *, between: float = 1.0) -> Tensor:
    """Weights of the first and the last row, and of the rows between, [T].

    Args:
        horizon: T.
        ends: Weight of the first and the last row.
        between: Weight of the others.
    """
    weights = torch.full((horizon,), between)
    weights[[0, -1]] = ends
    return weights


def check_horizon(config: DiffusionConfig, horizon: int, *, method: str, section: str) -> None:
    """Refuse a horizon at which time would shrink to nothing.

    Args:
        config: Settings of the network.
        horizon: T.
        method: Name of the method, for the message.
        section: Section of the settings at fault.
    """
    levels = len(config.widths)
    if horizon < levels:
        raise ConfigError(
            f"horizon {horizon}: {method} with {levels} levels needs a horizon of at least "
            f"{levels}, for each is one step shorter than the one above. Give {section}.widths no "
            f"more than {horizon} widths.",
            setting=f"{section}.widths",
        )
