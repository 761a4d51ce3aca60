"""The network and the diffusion of PDPP.

A temporal U-Net that predicts a plan from a noised one, and the steps between.

A plan is a matrix over time, [T, C + K + E]: in every row the task as one-hot, the action as
one-hot, and the observation, the initial one in row 1, the goal in row T and zero between. Task and
observations are given. Whatever is done to a matrix, it is
projected afterwards: its task and observation blocks become the given ones again. Only the actions
are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.errors import ConfigError
from cefito.field.predictor import Dropout, normalise, positions
from cefito.planners.pdpp.settings import PdppConfig

__all__ = ["Diffusion", "PdppNetwork", "Projection", "TemporalUNet", "check_horizon"]

_CLOSEST = 0.999  # most of the signal's variance that one diffusion step may take
_OFFSET = 0.008  # of the cosine schedule


class Diffusion:
    """Gaussian diffusion of which the clean matrix is predicted.

    The cosine schedule, noising, deterministic sampling.

    Times count from 0, the clean matrix, to `steps`, almost pure noise.

    Args:
        steps: S, diffusion steps in training.
        sampling: Steps of the sampler.

    Attributes:
        steps: S.
        times: The sampler's times, uniform, from S down to 0, [sampling + 1].
        signal: Share of the signal in the variance at each time, float64 [S + 1].
    """

    def __init__(self, *, steps: int, sampling: int) -> None:
        self.steps = steps
        self.times = [round(steps * left / sampling) for left in range(sampling, -1, -1)]
        # Nichol and Dhariwal (2021), Eq. 17: f(t) = cos²((t/S + s) / (1 + s) · π/2), with bounded
        # steps
        angle = (
            (torch.arange(steps + 1, dtype=torch.float64) / steps + _OFFSET)
            / (1 + _OFFSET)
            * math.pi
            / 2
        )
        share = angle.cos().square()
        taken = (1 - share[1:] / share[:-1]).clamp(max=_CLOSEST)
        self.signal = torch.cat([torch.ones(1, dtype=torch.float64), (1 - taken).cumprod(dim=0)])

    def noised(self, clean: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Clean matrices [B, …] with noise [B, …] at given times [B].

        √ᾱ · clean + √(1 − ᾱ) · noise.
        """
        signal = self.signal.to(clean.device)[times].view(-1, *(1,) * (clean.ndim - 1))
        return signal.sqrt().to(clean.dtype) * clean + (1 - signal).sqrt().to(clean.dtype) * noise

    def sample(
        self,
        predict: Callable[[Tensor, int], Tensor],
        noise: Tensor,
        project: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Denoise by DDIM with η = 0 (Song et al. 2021, Eq. 12).

        Nothing is drawn, nothing is clipped.

        Args:
            predict: Predicts the clean matrices [B, …] from noised ones [B, …] at a time.
            noise: What to start from [B, …].
            project: Applied to the noise, to every prediction and after every step.

        Returns:
            The matrices at time 0, [B, …].
        """
        x = project(noise)
        for now, after in pairwise(self.times):
            clean = project(predict(x, now))
            here, there = float(self.signal[now]), float(self.signal[after])
            rest = (x - math.sqrt(here) * clean) / math.sqrt(1 - here)
            x = project(math.sqrt(there) * clean + math.sqrt(1 - there) * rest)
        return x


@dataclass(frozen=True)
class Projection:
    """What is given of plans: the task in every row, the initial observation in the first row.

    The goal in the last.

    Attributes:
        given: Matrices with the task and observation blocks filled in, zero elsewhere, [B, T, C + K
            + E].
        actions: The columns of the action block.
    """

    given: Tensor
    actions: slice

    @classmethod
    def build(
        cls,
        tasks: Tensor,
        initial: Tensor,
        goal: Tensor,
        *,
        task_count: int,
        action_count: int,
        horizon: int,
    ) -> Projection:
        """The projection onto tasks [B] and observations [B, E].

        At T = 1 the goal stands where the initial one stood.
        """
        one_hot = F.one_hot(tasks, task_count).to(initial.dtype)[:, None].expand(-1, horizon, -1)
        between = initial.new_zeros(len(tasks), horizon, action_count + initial.shape[1])
        between[:, 0, action_count:] = initial
        between[:, -1, action_count:] = goal
        return cls(
            given=torch.cat([one_hot, between], dim=2),
            actions=slice(task_count, task_count + action_count),
        )

    def __call__(self, matrix: Tensor) -> Tensor:
        """The matrices [B, T, C + K + E] with task and observation blocks as given.

        Their action block stays.
        """
        return self.filled(matrix[..., self.actions])

    def filled(self, actions: Tensor) -> Tensor:
        """The given matrices with this action block [B, T, K]."""
        before, after = self.given[..., : self.actions.start], self.given[..., self.actions.stop :]
        return torch.cat([before, actions, after], dim=-1)


class TemporalUNet(nn.Module):
    """A U-Net over time with two residual blocks a level.

    Time shrinks by one from level to level, by convolutions of width 2 and stride 1, and grows back
    likewise. Each level going up takes the features of the level of the same length going down
    beside its own.

    Args:
        columns: D, columns of the matrices.
        widths: Channels of the levels.
        steps: S, the last time.
    """

    times: Tensor

    def __init__(self, *, columns: int, widths: tuple[int, ...], steps: int) -> None:
        super().__init__()
        first, last = widths[0], widths[-1]
        self.register_buffer("times", positions(steps + 1, first), persistent=False)
        self.time = nn.Sequential(
            nn.Linear(first, 4 * first), nn.Mish(), nn.Linear(4 * first, first), nn.Mish()
        )
        self.down = nn.ModuleList(_Level(*pair, first) for pair in pairwise((columns, *widths)))
        self.shrink = nn.ModuleList(nn.Conv1d(width, width, 2) for width in widths[:-1])
        self.middle = _Level(last, last, first)
        self.up = nn.ModuleList(
            _Level(2 * deep, shallow, first) for shallow, deep in reversed(list(pairwise(widths)))
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose1d(width, width, 2) for width in reversed(widths[:-1])
        )
        self.end = nn.Sequential(_Unit(2 * first, first), nn.Conv1d(first, columns, 1))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform, zero biases.

        The second convolution of every block is zero.

        So is the last layer (not published), for almost all of a plan is zero: from random weights
        training takes several times as long to get as far.
        """
        for module in self.modules():
            if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, _Block):
                nn.init.zeros_(module.second.convolution.weight)
        for parameter in self.end[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, matrix: Tensor, times: Tensor) -> Tensor:
        """[B, T, D] at times [B] → [B, T, D]; T must be at least the number of levels."""
        time = self.time(self.times[times])
        x, left = matrix.transpose(1, 2), []
        for place, level in enumerate(self.down):
            x = level(x if place == 0 else self.shrink[place - 1](x), time)
            left.append(x)
        x = self.middle(x, time)
        for level, grow in zip(self.up, self.grow, strict=True):
            x = grow(level(torch.cat([x, left.pop()], dim=1), time))
        return self.end(torch.cat([x, left.pop()], dim=1)).transpose(1, 2)  # type: ignore[no-any-return]


class _Unit(nn.Module):
    """Convolution of width 3, group norm, Mish."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inputs, width, 3, padding=1)
        # published: 32 groups at widths of 256 and more; narrower levels keep 8 channels a group,
        # so that a single position still has something to be normalised over
        self.norm = nn.GroupNorm(math.gcd(32, width // 8), width)

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(self.norm(self.convolution(x)))


class _Block(nn.Module):
    """Two units with the time added between them, and a path past them."""

    def __init__(self, inputs: int, width: int, time: int) -> None:
        super().__init__()
        self.first, self.second = _Unit(inputs, width), _Unit(width, width)
        self.time = nn.Linear(time, width)
        self.past = nn.Identity() if inputs == width else nn.Conv1d(inputs, width, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.second(self.first(x) + self.time(time)[:, :, None]) + self.past(x)  # type: ignore[no-any-return]


class _Level(nn.Module):
    """Two residual blocks."""

    def __init__(self, inputs: int, width: int, time: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([_Block(inputs, width, time), _Block(width, width, time)])

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, time)
        return x


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
        """Predict the clean matrices from projected ones [B, T, C + K + E] at times [B].

        Float32.
        """
        return self.unet(matrix, times).float()  # type: ignore[no-any-return]

    def scores(self, tasks: Tensor, initial: Tensor, goal: Tensor) -> Tensor:
        """The sampled action block, a score of each action at each step.

        Of tasks [B] and observations [B, E], [B, T, K].
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
            "for each is one "
            f"step shorter than the one above. Give pdpp.widths no more than {horizon} widths."
        )
