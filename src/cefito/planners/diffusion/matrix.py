"""A plan as a matrix over time, in named blocks of columns.

The matrix of a plan is [T, D]. Its columns are the blocks that a method gives (the task, walks of a
graph), then the action of each row as one-hot, then the observation: the initial one in row 1, the
goal in row T, zero between. All but the actions is given, and perhaps some of their entries too, as
zeros. After every change a matrix is projected: the given part is restored. Only the open actions
are predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.base import Shape

__all__ = ["ACTION", "OBSERVATION", "Block", "Layout", "Projection", "task_layout"]

ACTION = "action"
"""The block that is predicted."""
OBSERVATION = "observation"
"""The last block."""


@dataclass(frozen=True)
class Block:
    """Columns whose content is given.

    Attributes:
        name: Name of the block.
        width: Number of columns.
        fill: Makes their content [B, T, width], or [B, 1, width] if it is the same in every row,
            from the source for B plans, [B, ...].
    """

    name: str
    width: int
    fill: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The blocks of the matrices of a method, from left to right.

    Attributes:
        shape: K, E and T.
        before: The given blocks before the actions.
        ends_only: Whether only the first and the last action are predicted; the others are given as
            zeros.
    """

    shape: Shape
    before: tuple[Block, ...] = ()
    ends_only: bool = False

    @property
    def widths(self) -> dict[str, int]:
        """Columns of each block, by its name, in their order."""
        given = {block.name: block.width for block in self.before}
        return given | {ACTION: self.shape.actions, OBSERVATION: self.shape.observation_dim}

    @property
    def columns(self) -> int:
        """D, the columns of a matrix."""
        return sum(self.widths.values())

    def columns_of(self, name: str) -> slice:
        """The columns of a block."""
        first = 0
        for block, width in self.widths.items():
            if block == name:
                return slice(first, first + width)
            first += width
        raise KeyError(name)

    def rows(self, device: torch.device | None = None) -> Tensor:
        """The rows whose actions are predicted, bool [T]."""
        rows = torch.full((self.shape.horizon,), not self.ends_only, device=device)
        rows[[0, -1]] = True
        return rows

    def projection(self, *known: Tensor, allowed: Tensor | None = None) -> Projection:
        """The projection onto the given part of B plans; at T = 1 that has the goal alone.

        Args:
            known: Sources of the given blocks, in their order, [B, ...] each; then the initial
                observations and the goals, [B, E] each.
            allowed: Entries of the action block that are predicted, bool, broadcastable to
                [B, T, K]; the others are given as zeros. None for all (of the predicted rows).
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
            given=torch.cat([*filled, behind], dim=2),
            actions=self.columns_of(ACTION),
            allowed=allowed,
        )


@dataclass(frozen=True)
class Projection:
    """The given part of B plans.

    Attributes:
        given: Matrices of the given part, zero elsewhere, [B, T, D].
        actions: The columns of the action block.
        allowed: Its entries that are not given, bool, broadcastable to [B, T, K]; None for all.
    """

    given: Tensor
    actions: slice
    allowed: Tensor | None = None

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
    task = Block("task", count, lambda tasks: F.one_hot(tasks, count)[:, None])
    return Layout(shape=shape, before=(task,))
