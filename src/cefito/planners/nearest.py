"""The nearest training window in observation space.

No learning, a strong baseline where videos resemble each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.search.problem import Effort, Plans
from cefito.training.trainer import TrainingResult

__all__ = ["NearestPlanner"]

_BLOCK = 512


class NearestPlanner:
    """Plans what was done in the training windows whose two observations, side by side.

    Are nearest.

    Each observation is scaled to unit length, so that nearest is by the sum of the two cosines; on
    real features this is the stronger baseline. The energy of a plan is the Euclidean distance of
    the scaled pairs. With the task known, only its windows are looked at.
    """

    name = "nearest window"
    parameters: Mapping[str, int] = MappingProxyType({})
    results: Mapping[str, TrainingResult] = MappingProxyType({})

    def __init__(self) -> None:
        self._pairs: NDArray[np.float32] | None = None

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:  # noqa: ARG002
        """Keep the training windows; nothing is chosen."""
        self._pairs = _scaled_pairs(train.initial, train.goal)
        self._actions, self._tasks = train.actions, train.tasks

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task of the nearest window [N]."""
        if queries.tasks is not None:
            return queries.tasks
        nearest = [block.argmin(axis=1) for _, block in self._distances(queries)]
        return np.asarray(self._tasks[np.concatenate(nearest)])

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The sequences of the nearest windows, without repeats."""
        plans = []
        for first, block in self._distances(queries):
            for row, distances in enumerate(block, start=first):
                if queries.tasks is not None:
                    distances = np.where(self._tasks == queries.tasks[row], distances, np.inf)
                plans.append(self._best(distances, top_k))
        return plans

    def _best(self, distances: NDArray[np.float32], top_k: int) -> Plans:
        chosen: dict[tuple[int, ...], float] = {}
        for index in np.argsort(distances, kind="stable"):
            if len(chosen) == top_k or not np.isfinite(distances[index]):
                break
            chosen.setdefault(tuple(self._actions[index].tolist()), float(distances[index]))
        energies = np.array(list(chosen.values()))
        return Plans(
            actions=np.array(list(chosen), dtype=np.int64).reshape(-1, self._actions.shape[1]),
            energies=energies,
            scores=energies,
            evaluated=Effort(0, len(distances)),
            exact=True,
        )

    def _distances(self, queries: Queries) -> list[tuple[int, NDArray[np.float32]]]:
        if self._pairs is None:
            raise RunError("this planner has not been fitted; call fit or load first.")
        pairs = _scaled_pairs(queries.initial, queries.goal)
        squares = np.square(self._pairs).sum(axis=1)
        blocks = []
        for first in range(0, len(pairs), _BLOCK):
            part = pairs[first : first + _BLOCK]
            squared = (
                squares + np.square(part).sum(axis=1, keepdims=True) - 2 * part @ self._pairs.T
            )
            blocks.append((first, np.sqrt(np.maximum(squared, 0))))
        return blocks

    def save(self, folder: Path) -> None:
        """Write the training windows."""
        if self._pairs is None:
            raise RunError("this planner has not been fitted; there is nothing to save.")
        write_tensors(
            folder / "windows.safetensors",
            {"pairs": self._pairs, "actions": self._actions, "tasks": self._tasks},
        )

    def load(self, folder: Path) -> None:
        """Read them back."""
        tensors, _ = load_tensors(
            folder / "windows.safetensors", "np", "Fit the planner again.", RunError
        )
        self._pairs, self._actions, self._tasks = (
            tensors["pairs"],
            tensors["actions"],
            tensors["tasks"],
        )


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
