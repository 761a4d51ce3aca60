"""A plan as a matrix over time [T, D], in blocks of columns.

Given blocks, the actions as one-hot, observations (initial in row 1, goal in row T, else zero). A
projection restores the given part after every change; only open actions are predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.base import Shape


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

    def projection(self, *known: Tensor, allowed: Tensor | None = None) -> Projection:
        """The projection onto the given part of B plans; at T = 1 that has the goal alone.

        `known` are the sources of the given blocks, in their order, [B, ...] each; then the initial
        observations and the goals, [B, E] each. Entries of the action block that are not `allowed`,
        bool, broadcastable to [B, T, K], are given as zeros.
        """
        *blocks, initial, goal = known
        horizon, actions = self.shape.horizon, self.shape.actions
        filled = [
            block.fill(given).to(initial.dtype).expand(-1, horizon, -1)
            for block, given in zip(self.before, blocks, strict=True)
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
