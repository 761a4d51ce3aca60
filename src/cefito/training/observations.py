"""Training observations on the device, and the changes made to them: noise, and swaps between windows of the same action."""

from __future__ import annotations

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.training.config import AugmentationConfig

__all__ = ["Observations"]


class Observations:
    """The observations of training windows.

    Args:
        windows: Training windows.
        config: Changes in training.
        device: Where they are kept.
    """

    def __init__(self, windows: Windows, config: AugmentationConfig, device: torch.device) -> None:
        self.config = config
        self.initial = torch.from_numpy(windows.initial).to(device)
        self.goal = torch.from_numpy(windows.goal).to(device)
        both = torch.cat([self.initial, self.goal])
        self.mean = both.mean(dim=0)
        self.deviation = both.std(dim=0)
        tasks, actions = torch.from_numpy(windows.tasks), torch.from_numpy(windows.actions)
        self._alike = [_Groups(tasks, actions[:, place], device) for place in (0, -1)]

    def draw(self, rows: Tensor, generator: torch.Generator, ends: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Observations of some windows, changed as configured.

        Args:
            rows: Numbers of the windows [B].
            generator: Source of all changes.
            ends: Windows that the goals come from [B], where they are not the same.

        Returns:
            Initial and goal observations, each [B, E].
        """
        drawn = []
        places = (rows, rows if ends is None else ends)
        for source, groups, place in zip((self.initial, self.goal), self._alike, places, strict=True):
            chosen = groups.swap(place, self.config.swap, generator) if self.config.swap else place
            x = source[chosen]
            if self.config.noise:
                noise = torch.randn(x.shape, generator=generator, device=x.device)
                x = x + self.config.noise * self.deviation * noise
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
        """Replace a share of the rows by random members of their groups."""
        draw = torch.rand(2, len(rows), generator=generator, device=rows.device)
        other = self.members[self.first[rows] + (draw[0] * self.size[rows]).long()]
        return torch.where(draw[1] < share, other, rows)
