"""The nearest training window in observation space: strong where videos resemble each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import (
    UNCONSTRAINED,
    BasePlanner,
    Fitted,
    Queries,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost

__all__ = ["NearestPlanner"]

_FILE = "windows.safetensors"
_REMEDY = "Fit the planner again."
_BLOCK = 512  # queries compared with all training windows at once


@dataclass(frozen=True, eq=False, repr=False)
class NearestPlanner(BasePlanner):
    """Plans what was done in the training windows whose two observations are nearest.

    Nothing is learned. Each observation is scaled to unit length, so that nearest is by the sum of
    the two cosines; on real features this is the stronger baseline. The energy of a plan is the
    Euclidean distance of the scaled pairs. With the task known, only its windows are looked at.

    Attributes:
        pairs: Both observations of each training window, scaled, side by side, [M, 2 E].
        actions: Their actions [M, T].
        tasks: Their tasks [M].
    """

    pairs: NDArray[np.float32]
    actions: NDArray[np.int64]
    tasks: NDArray[np.int64]
    name = "nearest window"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,  # noqa: ARG003
        *,
        settings: Any = None,  # noqa: ARG003
        seed: int = 0,  # noqa: ARG003
        context: TrainingContext = TrainingContext(),  # noqa: ARG003
    ) -> Fitted[Self]:
        """Keep the training windows; nothing is chosen."""
        return Fitted(cls(_scaled_pairs(train.initial, train.goal), train.actions, train.tasks))

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: Any = None,  # noqa: ARG003
        context: TrainingContext = TrainingContext(),  # noqa: ARG003
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged file.
        """
        folder = Path(folder)
        tensors, _ = load_tensors(folder / _FILE, "np", _REMEDY, RunError)
        try:
            pairs, actions, tasks = (tensors[name] for name in ("pairs", "actions", "tasks"))
        except KeyError as problem:
            raise RunError(f"{folder / _FILE}: holds no {problem}. {_REMEDY}") from problem
        if (
            pairs.dtype != np.float32
            or pairs.ndim != 2
            or not pairs.size
            or pairs.shape[1] % 2
            or not np.isfinite(pairs).all()
            or actions.ndim != 2
            or not actions.size
            or any(part.dtype != np.int64 or part.min() < 0 for part in (actions, tasks))
            or not len(pairs) == len(actions) == len(tasks)
            or tasks.ndim != 1
        ):
            raise RunError(
                f"{folder / _FILE}: its arrays hold no training windows: expected finite pairs "
                f"[M, 2 E], actions [M, T] and tasks [M]. {_REMEDY}"
            )
        return cls(pairs, actions, tasks)

    def save(self, folder: Path | str) -> None:
        """Write the training windows."""
        folder = Path(folder)
        write_tensors(
            folder / _FILE, {"pairs": self.pairs, "actions": self.actions, "tasks": self.tasks}
        )

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return int(self.actions.shape[1])

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return int(self.pairs.shape[1]) // 2

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(int(self.tasks.max()) + 1, int(self.actions.max()) + 1, least=True)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task of the nearest window [N]."""
        if queries.tasks is not None:
            return queries.tasks
        nearest = [block.argmin(axis=1) for _, block in self._distances(queries)]
        return np.asarray(self.tasks[np.concatenate(nearest)])

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The sequences of the nearest windows, without repeats."""
        check_queries(self, queries, top_k, constraints)
        plans = []
        for first, block in self._distances(queries):
            for row, distances in enumerate(block, start=first):
                if queries.tasks is not None:
                    distances = np.where(self.tasks == queries.tasks[row], distances, np.inf)
                plans.append(self._best(distances, top_k))
        return plans

    def _best(self, distances: NDArray[np.float32], top_k: int) -> Plans:
        chosen: dict[tuple[int, ...], float] = {}
        for index in np.argsort(distances, kind="stable"):
            if len(chosen) == top_k or not np.isfinite(distances[index]):
                break
            chosen.setdefault(tuple(self.actions[index].tolist()), float(distances[index]))
        energies = np.array(list(chosen.values()))
        return Plans(
            actions=np.array(list(chosen), dtype=np.int64).reshape(-1, self.horizon),
            energies=energies,
            scores=energies,
            evaluated=SearchCost(0, len(distances)),
            exact=True,
        )

    def _distances(self, queries: Queries) -> list[tuple[int, NDArray[np.float32]]]:
        """Distances to all training windows, a block of queries at a time, with its first row."""
        pairs = _scaled_pairs(queries.initial, queries.goal)
        squares = np.square(self.pairs).sum(axis=1)
        blocks = []
        for first in range(0, len(pairs), _BLOCK):
            part = pairs[first : first + _BLOCK]
            squared = squares + np.square(part).sum(axis=1, keepdims=True) - 2 * part @ self.pairs.T
            blocks.append((first, np.sqrt(np.maximum(squared, 0))))
        return blocks


def _scaled_pairs(initial: NDArray[np.float32], goal: NDArray[np.float32]) -> NDArray[np.float32]:
    """Both observations of each window at unit length, side by side, [N, 2 E]."""
    tiny = np.finfo(np.float32).tiny
    return np.concatenate(
        [
            part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), tiny)
            for part in (initial, goal)
        ],
        axis=1,
    )
