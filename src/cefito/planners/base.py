"""The protocol of a planner, and the queries it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.search.problem import Plans
from cefito.training.trainer import TrainingResult

__all__ = ["Planner", "Queries"]


@dataclass(frozen=True)
class Queries:
    """What plans are asked for.

    Attributes:
        initial: Initial observations, float32 [N, E].
        goal: Goal observations, float32 [N, E].
        tasks: The tasks, where they are known (oracle), int64 [N]; None to have them predicted.
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    tasks: NDArray[np.int64] | None = None

    @classmethod
    def from_windows(cls, windows: Windows, *, oracle_task: bool = False) -> Queries:
        """The windows' observations; their true tasks only for an oracle."""
        return cls(
            initial=windows.initial, goal=windows.goal, tasks=windows.tasks if oracle_task else None
        )

    def __len__(self) -> int:
        return len(self.initial)

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Queries:
        """The queries of the given rows."""
        index = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            initial=self.initial[index],
            goal=self.goal[index],
            tasks=None if self.tasks is None else self.tasks[index],
        )


class Planner(Protocol):
    """A method that learns from windows and plans for queries."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def parameters(self) -> Mapping[str, int]:
        """Learned numbers of each network that takes part in planning, by its name.

        Empty where nothing is learned.
        """

    @property
    def results(self) -> Mapping[str, TrainingResult]:
        """How the training of each of its networks went, by the network's name.

        Empty where it was loaded.
        """

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Learn; whatever is chosen is chosen on `val`."""

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The task it plans each query for [N]; None if it has no such notion."""

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The best plans of each query, best first; at most `top_k`."""

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into an existing folder."""

    def load(self, folder: Path) -> None:
        """Become the planner that was saved there."""
