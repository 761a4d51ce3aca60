"""Training observations on the device, and their augmentation by noise and swaps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.training.settings import AugmentationConfig

_KNOWN = 10.0  # observations that a mean learned before counts as


class Observations:
    """The observations of training windows.

    Args:
        windows: The windows.
        config: How observations are changed.
        device: Where they are kept.
    """

    def __init__(self, windows: Windows, config: AugmentationConfig, device: torch.device) -> None:
        self.config = config
        self.initial = torch.from_numpy(windows.initial).to(device)
        self.goal = torch.from_numpy(windows.goal).to(device)
        self.mean = (self.initial.mean(dim=0) + self.goal.mean(dim=0)) / 2  # [E]
        tasks, ends = torch.from_numpy(windows.tasks), torch.from_numpy(windows.ends)
        self._groups = [_Groups(tasks, ends[:, place], device) for place in (0, 1)]

    @cached_property
    def deviation(self) -> Tensor:
        """The standard deviation of each feature [E]; needs the memory of all once more."""
        return torch.cat([self.initial, self.goal]).std(dim=0)

    def draw(
        self, rows: Tensor, generator: torch.Generator, ends: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return observations of some windows, [B, E] each, changed as configured.

        Args:
            rows: Numbers of windows [B].
            generator: Draws the changes.
            ends: Windows of the goals [B]; None for the same.
        """
        drawn = []
        places = (rows, rows if ends is None else ends)
        for source, groups, place in zip(
            (self.initial, self.goal), self._groups, places, strict=True
        ):
            chosen = groups.swap(place, self.config.swap, generator) if self.config.swap else place
            x = source[chosen]
            if self.config.noise:
                noise = torch.randn(x.shape, generator=generator, device=x.device)
                scale = self.deviation if self.config.scale == "feature" else x.std()
                x = x + self.config.noise * scale * noise
            drawn.append(x)
        return drawn[0], drawn[1]


class _Groups:
    """Windows grouped by task and one action."""

    def __init__(self, tasks: Tensor, actions: Tensor, device: torch.device) -> None:
        key = tasks * (int(actions.max()) + 1) + actions
        _, group, counts = key.unique(return_inverse=True, return_counts=True)
        self.members = group.argsort(stable=True).to(device)
        self.size = counts[group].to(device)
        self.first = (counts.cumsum(0) - counts)[group].to(device)

    def swap(self, rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Replace a share of the rows [B] by random members of their groups."""
        draw = torch.rand(2, len(rows), generator=generator, device=rows.device)
        other = self.members[self.first[rows] + (draw[0] * self.size[rows]).long()]
        return torch.where(draw[1] < share, other, rows)


class ActionMeans:
    """The mean normalised observation of each action, over the ends of training windows.

    An initial observation shows the window's first action, a goal its last. Training draws means
    from which the videos of the batch, and a random part of the others, are left out; otherwise a
    window would recognise itself in them.

    Args:
        windows: Training windows.
        mean: Subtracted before normalisation [E].
        normalise: Normalises observations […, E].
        learned: Means of the first K' actions of an earlier training [K', E], zero where none was;
            each counts as ten observations of a further video, which is never left out.
    """

    def __init__(
        self,
        windows: Windows,
        mean: Tensor,
        normalise: Callable[[Tensor], Tensor],
        learned: Tensor | None = None,
    ) -> None:
        self.count = len(windows.taxonomy.actions)
        actions = torch.from_numpy(windows.actions[:, [0, -1]].T.flatten()).to(mean.device)
        self.video = torch.from_numpy(windows.video).to(mean.device)
        both = torch.from_numpy(np.concatenate([windows.initial, windows.goal])).to(mean.device)
        # sums over the observations of each (action, video), ordered by action: [P, E]
        videos = int(self.video.max()) + 1
        key, place = (actions * videos + self.video.repeat(2)).unique(return_inverse=True)
        self.sums = torch.zeros(len(key), both.shape[1], device=mean.device).index_add_(
            0, place, normalise(both - mean)
        )
        self.counts = torch.bincount(place, minlength=len(key)).float()
        self.actions, self.videos = key // videos, key % videos
        ids = torch.arange(self.count + 1, device=mean.device)
        self.first = torch.searchsorted(self.actions, ids)
        self.known: tuple[Tensor, Tensor] | None = None
        if learned is not None:
            rows = F.pad(learned.to(mean.device), (0, 0, 0, self.count - len(learned)))
            counts = _KNOWN * (rows != 0).any(dim=1).float()
            self.known = rows * counts[:, None], counts

    def all(self) -> Tensor:
        """Return the means over all training windows [K, E]; zero for actions without any."""
        return self._mean(torch.ones(len(self.actions), device=self.actions.device))

    def without(self, rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Return the means [K, E] without the videos of `rows` and a random share of others.

        Args:
            rows: Numbers of windows [B].
            share: Share of the other videos to leave out.
            generator: Draws these videos.
        """
        videos = int(self.video.max()) + 1
        keep = torch.rand(videos, generator=generator, device=self.actions.device) >= share
        keep[self.video[rows]] = False
        return self._mean(keep[self.videos].float())

    def _mean(self, weight: Tensor) -> Tensor:
        sums = F.embedding_bag(
            torch.arange(len(weight), device=weight.device),
            self.sums,
            self.first,
            mode="sum",
            per_sample_weights=weight,
            include_last_offset=True,
        )
        counts = torch.zeros(self.count, device=weight.device).index_add_(
            0, self.actions, weight * self.counts
        )
        if self.known is not None:
            sums, counts = sums + self.known[0], counts + self.known[1]
        return sums / counts.clamp_min(1)[:, None]
