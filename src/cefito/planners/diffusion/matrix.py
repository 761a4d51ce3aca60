"""What is diffused: a plan as a matrix over time, in named blocks of columns.

The matrix of a plan is [T, D]. Its columns are the blocks that a method gives (the task, walks of a
graph), then the action of each row as one-hot, then the observation, which is the initial one in
row 1, the goal in row T and zero between. All but the actions is given, and perhaps some of their
entries too, as zeros. Whatever is done to a matrix, it is projected afterwards: what is given
becomes what it was. Only the actions that are left open are predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["ACTION", "OBSERVATION", "Block", "Layout", "Projection", "task_block"]

ACTION = "action"
"""The block that is predicted."""
OBSERVATION = "observation"
"""The last block."""


@dataclass(frozen=True)
class Block:
    """Columns whose content is given.

    Attributes:
        name: What they hold.
        width: How many they are.
        fill: Their content [B, T, width], or [B, 1, width] where it is the same in every row, from
            what is known of B plans, [B, …].
    """

    name: str
    width: int
    fill: Callable[[Tensor], Tensor]


def task_block(count: int) -> Block:
    """The task as one-hot in every row, from task ids [B].

    Raises:
        ValueError: There is no task.
    """
    if count < 1:
        raise ValueError(f"{count} tasks")
    return Block("task", count, lambda tasks: F.one_hot(tasks, count)[:, None])


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The blocks of the matrices of a method, from left to right.

    Attributes:
        before: The given blocks, which stand before the actions.
        action_count: K.
        observation_dim: E.
        horizon: T.
        ends_only: Whether only the first and the last action are predicted; those between are given
            as zeros.
    """

    before: tuple[Block, ...] = ()
    action_count: int
    observation_dim: int
    horizon: int
    ends_only: bool = False

    @property
    def widths(self) -> dict[str, int]:
        """Columns of each block, by its name, in their order."""
        given = {block.name: block.width for block in self.before}
        return given | {ACTION: self.action_count, OBSERVATION: self.observation_dim}

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
        rows = torch.full((self.horizon,), not self.ends_only, device=device)
        rows[[0, -1]] = True
        return rows

    def projection(self, *known: Tensor, allowed: Tensor | None = None) -> Projection:
        """The projection onto what is given of B plans.

        At T = 1 the goal stands where the initial observation stood.

        Args:
            known: What each given block is filled from, in their order, [B, …] each; then the
                initial observations and the goals, [B, E] each.
            allowed: Entries of the action block that are predicted, bool, broadcastable to
                [B, T, K]; the others are given as zeros. None for all (of the predicted rows).
        """
        *blocks, initial, goal = known
        filled = [
            block.fill(given).to(initial.dtype).expand(-1, self.horizon, -1)
            for block, given in zip(self.before, blocks, strict=True)
        ]
        behind = initial.new_zeros(
            len(initial), self.horizon, self.action_count + self.observation_dim
        )
        behind[:, 0, self.action_count :] = initial
        behind[:, -1, self.action_count :] = goal
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
    """What is given of B plans.

    Attributes:
        given: Matrices with all that is given filled in, zero elsewhere, [B, T, D].
        actions: The columns of the action block.
        allowed: Its entries that are not given, bool, broadcastable to [B, T, K]; None for all.
    """

    given: Tensor
    actions: slice
    allowed: Tensor | None = None

    def __call__(self, matrix: Tensor) -> Tensor:
        """The matrices [B, T, D] with all that is given as it is."""
        return self.filled(matrix[..., self.actions])

    def open(self, actions: Tensor) -> Tensor:
        """An action block [B, T, K], zero where that is given."""
        return actions if self.allowed is None else actions.where(self.allowed, 0)

    def filled(self, actions: Tensor) -> Tensor:
        """The given matrices with this action block [B, T, K], zero where that is given."""
        before, after = self.given[..., : self.actions.start], self.given[..., self.actions.stop :]
        return torch.cat([before, self.open(actions), after], dim=-1)
