"""The states of a chain over actions: an action of a task, task by task.

An action that occurs in several tasks has a state in each, and transitions between tasks are
impossible. Arrays over states are
padded to the largest task ([C, A], [C, A, A]): with K actions in C tasks that is C·A² numbers a
step instead of K².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

__all__ = ["TaskStates", "smoothed_transitions"]


@dataclass(frozen=True)
class TaskStates:
    """The states of a chain, task by task.

    Attributes:
        actions: Action id of each state, int64 [S].
        tasks: Task id of each state, ascending, int64 [S].
        grid: State at each place of each task, int64 [C, A]; S where a task has fewer than A
            actions.
        place: Place of each state in its task, int64 [S].
        lookup: State of each task's actions, int64 [C, K]; −1 where the task does not have the
            action.
    """

    actions: Tensor
    tasks: Tensor
    grid: Tensor
    place: Tensor
    lookup: Tensor

    @classmethod
    def make(cls, actions: Sequence[Sequence[int]], action_count: int) -> TaskStates:
        """Number the states.

        Args:
            actions: Action ids of each task, position = task id.
            action_count: K.

        Raises:
            ValueError: No state at all, an id out of range, or one twice in a task.
        """
        sizes = [len(row) for row in actions]
        if not sum(sizes):
            raise ValueError("no task has any action")
        ids = torch.tensor([action for row in actions for action in row], dtype=torch.int64)
        tasks = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        if int(ids.min()) < 0 or int(ids.max()) >= action_count:
            raise ValueError(
                f"actions are {int(ids.min())} to {int(ids.max())}, but there are {action_count}"
            )
        place = torch.tensor([place for size in sizes for place in range(size)], dtype=torch.int64)
        grid = torch.full((len(sizes), max(sizes)), len(ids))
        grid[tasks, place] = torch.arange(len(ids))
        lookup = torch.full((len(sizes), action_count), -1)
        lookup[tasks, ids] = torch.arange(len(ids))
        if int((lookup >= 0).sum()) != len(ids):
            raise ValueError("a task has an action twice")
        return cls(actions=ids, tasks=tasks, grid=grid, place=place, lookup=lookup)

    @classmethod
    def of(cls, lookup: Tensor) -> TaskStates:
        """The states that a lookup [C, K] tells.

        Raises:
            ValueError: It is none.
        """
        if lookup.ndim != 2 or lookup.dtype != torch.int64:
            raise ValueError(f"no lookup of states: {lookup.dtype} {list(lookup.shape)}")
        actions = [(row >= 0).nonzero().flatten().tolist() for row in lookup]
        made = cls.make(actions, lookup.shape[1])
        if not torch.equal(made.lookup, lookup):
            raise ValueError("states are not numbered task by task, by ascending actions")
        return made

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def task_count(self) -> int:
        """C."""
        return len(self.grid)

    def by_task(self) -> tuple[tuple[int, ...], ...]:
        """Action ids of each task, ascending."""
        return tuple(tuple(ids.nonzero()[:, 0].tolist()) for ids in (self.lookup >= 0))

    def to(self, device: torch.device | str) -> TaskStates:
        """The same on a device."""
        return TaskStates(**{name: value.to(device) for name, value in vars(self).items()})

    def find(self, tasks: Tensor, sequences: Tensor) -> Tensor:
        """States of action sequences.

        Args:
            tasks: Task ids [...].
            sequences: Action ids [..., T].

        Returns:
            [..., T]; −1 where a task does not have an action.
        """
        return self.lookup[tasks[..., None], sequences]

    def padded(self, values: Tensor) -> Tensor:
        """Values of states [..., S] as [..., C, A], −∞ where there is no state."""
        filled = F.pad(values, (0, 1), value=-torch.inf)
        padded: Tensor = filled[..., self.grid.flatten()].unflatten(-1, self.grid.shape)
        return padded

    def flat(self, values: Tensor) -> Tensor:
        """Values [..., C, A] as those of states [..., S]."""
        flat: Tensor = values[..., self.tasks, self.place]
        return flat


def smoothed_transitions(
    states: TaskStates,
    sequences: NDArray[np.integer[Any]] | Tensor,
    tasks: NDArray[np.integer[Any]] | Tensor,
    smoothing: float = 0.2,
) -> Tensor:
    """Logarithms of smoothed shares of the actions that follow each action, by task.

    Args:
        states: The states.
        sequences: Actions of training windows [N, T].
        tasks: Their tasks [N].
        smoothing: Added to each count.

    Returns:
        float32 [C, A, A]: log((n(a, b) + s) / (n(a) + s·|A|)); 0 at places without a state.
    """
    found = states.find(torch.as_tensor(tasks).long(), torch.as_tensor(sequences).long())
    pairs = torch.stack([found[:, :-1].flatten(), found[:, 1:].flatten()])
    pairs = pairs[:, (pairs >= 0).all(dim=0)]
    width = states.grid.shape[1]
    counts = torch.zeros(states.task_count, width, width, dtype=torch.float64)
    index = (states.tasks[pairs[0]], states.place[pairs[0]], states.place[pairs[1]])
    counts.index_put_(index, torch.ones(pairs.shape[1], dtype=torch.float64), accumulate=True)
    real = states.grid < len(states)
    both = real[:, :, None] & real[:, None, :]
    counts = (counts + smoothing) * both
    shares = counts / counts.sum(dim=2, keepdim=True).clamp_min(1e-300)
    return torch.where(both, shares.clamp_min(1e-300).log(), 0.0).float()
