"""The states of a chain over actions: pairs of a task and one of its actions.

There are no transitions between tasks: arrays are padded to the largest task, [C, A, A].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class TaskStates:
    """The states of a chain, task by task."""

    actions: Tensor  # action id of each state, int64 [S]
    tasks: Tensor  # task id of each state, ascending, int64 [S]
    # state at each place of each task, int64 [C, A]; S if the task has fewer than A actions
    grid: Tensor
    place: Tensor  # place of each state in its task, int64 [S]
    lookup: Tensor  # state of each task's actions, int64 [C, K]; −1 for actions of other tasks

    @classmethod
    def make(cls, actions: Sequence[Sequence[int]], action_count: int) -> TaskStates:
        """Number the states of the actions of each task, position = task id."""
        sizes = [len(row) for row in actions]
        ids = torch.tensor([action for row in actions for action in row], dtype=torch.int64)
        tasks = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        place = torch.tensor([place for size in sizes for place in range(size)], dtype=torch.int64)
        grid = torch.full((len(sizes), max(sizes)), len(ids))
        grid[tasks, place] = torch.arange(len(ids))
        lookup = torch.full((len(sizes), action_count), -1)
        lookup[tasks, ids] = torch.arange(len(ids))
        return cls(actions=ids, tasks=tasks, grid=grid, place=place, lookup=lookup)

    @classmethod
    def of(cls, lookup: Tensor) -> TaskStates:
        """Return the states of a saved lookup [C, K]."""
        actions = [(row >= 0).nonzero().flatten().tolist() for row in lookup]
        return cls.make(actions, lookup.shape[1])

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def real(self) -> Tensor:
        """Whether each place of each task has a state, bool [C, A]."""
        return self.grid < len(self)

    @property
    def task_count(self) -> int:
        """C."""
        return len(self.grid)

    @cached_property
    @torch.inference_mode(False)
    def owners(self) -> Tensor:
        """Tasks of each action, ascending, int64 [K, M]; C at places without one."""
        order = self.actions.argsort(stable=True)
        counts = self.actions.bincount(minlength=self.lookup.shape[1])
        place = torch.arange(len(self), device=order.device) - (
            (counts.cumsum(0) - counts).repeat_interleave(counts)
        )
        most = max(1, int(counts.max()))
        owners = self.tasks.new_full((len(counts), most), self.task_count)
        owners[self.actions[order], place] = self.tasks[order]
        return owners

    @cached_property
    @torch.inference_mode(False)
    def blocks(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Tasks of similar size [c], and their part of the grid [c, a], for sums without padding.

        Each task of a block has at least two thirds as many actions as its largest one.
        """
        sizes = self.real.sum(dim=1)
        order = sizes.argsort(descending=True, stable=True)
        blocks, first, ranked = [], 0, sizes[order].tolist()
        for place, size in enumerate([*ranked, -1]):
            if 3 * size < 2 * ranked[first]:
                tasks = order[first:place]
                blocks.append((tasks, self.grid[tasks, : max(1, ranked[first])]))
                first = place
        return tuple(blocks)

    @cached_property
    @torch.inference_mode(False)
    def shared(self) -> Tensor:
        """Whether each state's action is one of several tasks, bool [S]."""
        return self.actions.bincount()[self.actions] > 1

    def by_task(self) -> tuple[tuple[int, ...], ...]:
        """Return the action ids of each task, ascending."""
        return tuple(tuple(ids.nonzero()[:, 0].tolist()) for ids in (self.lookup >= 0))

    def to(self, device: torch.device | str) -> TaskStates:
        """Return the states on a device."""
        return TaskStates(
            **{
                attribute.name: getattr(self, attribute.name).to(device)
                for attribute in fields(self)
            }
        )

    def find(self, tasks: Tensor, sequences: Tensor) -> Tensor:
        """Return the states […, T] of sequences […, T] of tasks […]; −1 for foreign actions."""
        return self.lookup[tasks[..., None], sequences]

    def padded(self, values: Tensor) -> Tensor:
        """Return values of states […, S] as […, C, A], −∞ at places without a state."""
        filled = F.pad(values, (0, 1), value=-torch.inf)
        padded: Tensor = filled[..., self.grid.flatten()].unflatten(-1, self.grid.shape)
        return padded

    def flat(self, values: Tensor) -> Tensor:
        """Return values […, C, A] as values of states […, S]."""
        flat: Tensor = values[..., self.tasks, self.place]
        return flat


def smoothed_transitions(
    states: TaskStates,
    sequences: NDArray[np.integer[Any]] | Tensor,
    tasks: NDArray[np.integer[Any]] | Tensor,
    smoothing: float = 0.2,
) -> Tensor:
    """Return log p(b | a, task) of smoothed counts of training windows.

    Args:
        states: States of all tasks.
        sequences: Actions of training windows [N, T].
        tasks: Their tasks [N].
        smoothing: s.
    """
    # returns float32 [C, A, A]: log((n(a, b) + s) / (n(a) + s·|A|)); 0 at places without a state
    sequence_states = states.find(torch.as_tensor(tasks).long(), torch.as_tensor(sequences).long())
    pairs = torch.stack([sequence_states[:, :-1].flatten(), sequence_states[:, 1:].flatten()])
    pairs = pairs[:, (pairs >= 0).all(dim=0)]
    width = states.grid.shape[1]
    counts = torch.zeros(states.task_count, width, width, dtype=torch.float64)
    index = (states.tasks[pairs[0]], states.place[pairs[0]], states.place[pairs[1]])
    counts.index_put_(index, torch.ones(pairs.shape[1], dtype=torch.float64), accumulate=True)
    real = states.real
    both = real[:, :, None] & real[:, None, :]
    counts = (counts + smoothing) * both
    shares = counts / counts.sum(dim=2, keepdim=True).clamp_min(1e-300)
    return torch.where(both, shares.clamp_min(1e-300).log(), 0.0).float()
