"""Walks of the procedural knowledge graph between two actions, and their columns of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.planners.shared.graph import likeliest_walks, transition_probabilities

__all__ = ["WalkGraph", "walk_block"]


@dataclass(frozen=True, eq=False)
class WalkGraph:
    """Counted transitions, with the likeliest walks between two actions."""

    counts: NDArray[np.int64]  # [K, K]
    horizon: int  # T ≥ 2, the actions of a walk
    count: int  # R, walks for each pair of ends

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of each next action, zero after actions that nothing follows, [K, K]."""
        return transition_probabilities(self.counts)

    def between(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """The likeliest walks [N, R, T] between first and last actions [N, 2], likeliest first.

        Without any walk, the first action fills the first half of the plan (the longer one at odd
        T) and the last action the second; with fewer than R, the last walk is repeated.
        """
        pairs, place = np.unique(ends, axis=0, return_inverse=True)
        found = [self._between(first, last) for first, last in pairs.tolist()]
        walks = np.array(found, dtype=np.int64).reshape(len(pairs), self.count, self.horizon)
        return walks[place.reshape(-1)]

    def _between(self, first: int, last: int) -> NDArray[np.int64]:
        walks = likeliest_walks(
            self.probabilities, first=first, last=last, horizon=self.horizon, count=self.count
        )
        if not len(walks):
            half = self.horizon // 2
            walks = np.array([[first] * (self.horizon - half) + [last] * half])
        return np.concatenate([walks, np.repeat(walks[-1:], self.count - len(walks), axis=0)])


def walk_block(walks: Tensor, action_count: int, *, summed: bool = False) -> Tensor:
    """Walks [B, R, T], likeliest first, as columns of a plan's matrix, float32 [B, T, K].

    Weights fall in equal steps and add up to one: 2/3 and 1/3 for two walks. If walks agree, their
    weights are `summed`, or the last one is taken.
    """
    batch, count, horizon = walks.shape
    block = torch.zeros(batch, horizon, action_count, device=walks.device)
    for place, actions in enumerate(walks.unbind(1)):
        weight = 2 * (count - place) / (count * (count + 1))
        if summed:
            block.scatter_add_(2, actions[:, :, None], torch.full_like(block[:, :, :1], weight))
        else:
            block.scatter_(2, actions[:, :, None], weight)
    return block
