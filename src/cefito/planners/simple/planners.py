"""Planners without a network of their own: nearest and most frequent training windows.

The nearest window in observation space is strong where videos resemble each other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.planners.base import Abilities, Fitted, Marginals, Queries, Shape
from cefito.planners.base_planner import BasePlanner
from cefito.planners.network import Sized, data_shape
from cefito.planners.shared.settings import ClassifierSettings
from cefito.planners.shared.task_model import TaskModel
from cefito.planners.simple.method import FREQUENT_ABILITIES
from cefito.search.problem import Plans, SearchCost

_FILE = "windows.safetensors"
_BLOCK = 512  # queries compared with all training windows at once


@dataclass(frozen=True, eq=False, repr=False)
class NearestPlanner(Sized, BasePlanner):
    """Plans the actions of the training windows whose two observations are nearest.

    Each observation is scaled to unit length, which is the stronger baseline on real features. The
    energy of a plan is the Euclidean distance of the scaled pairs. A given task restricts windows.
    """

    pairs: NDArray[np.float32]  # both observations of each training window, scaled, [M, 2 E]
    actions: NDArray[np.int64]  # ids, of the windows [M, T]
    tasks: NDArray[np.int64]  # ids, of the windows [M]
    shape: Shape  # dimensions of the data
    name = "nearest window"

    @classmethod
    def fit(cls, train: Windows, val: Windows, **options: Any) -> Fitted[Self]:  # noqa: ARG003
        """Keep the training windows."""
        pairs = _scaled_pairs(train.initial, train.goal)
        return Fitted(cls(pairs, train.actions, train.tasks, data_shape(train)))

    @classmethod
    def load(cls, folder: Path | str, **options: Any) -> Self:  # noqa: ARG003
        """Load the planner that was saved in a folder."""
        tensors, metadata = load_tensors(
            Path(folder) / _FILE, "np", "Fit the planner again.", RunError
        )
        return cls(**tensors, shape=Shape(**json.loads(metadata["shape"])))

    def save(self, folder: Path | str) -> None:
        """Write the training windows."""
        tensors = {"pairs": self.pairs, "actions": self.actions, "tasks": self.tasks}
        write_tensors(Path(folder) / _FILE, tensors, {"shape": json.dumps(asdict(self.shape))})

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks, else the task of the nearest window [N]."""
        if queries.tasks is not None:
            return queries.tasks
        nearest = [block.argmin(axis=1) for block in self._distances(queries)]
        return np.asarray(self.tasks[np.concatenate(nearest)])

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """The sequences of the nearest windows, without repeats."""
        rows = [row for block in self._distances(queries) for row in block]
        if queries.tasks is not None:
            rows = [
                np.where(self.tasks == task, row, np.inf)
                for task, row in zip(queries.tasks, rows, strict=True)
            ]
        return [self._best(row, top_k) for row in rows]

    def _best(self, distances: NDArray[np.float32], top_k: int) -> Plans:
        chosen: dict[tuple[int, ...], float] = {}
        for index in np.argsort(distances, kind="stable"):
            if len(chosen) == top_k or not np.isfinite(distances[index]):
                break
            chosen.setdefault(tuple(self.actions[index].tolist()), float(distances[index]))
        actions = np.array(list(chosen), dtype=np.int64).reshape(-1, self.horizon)
        energies = np.array(list(chosen.values()))
        return Plans(actions, energies, energies, SearchCost(0, len(distances)), exact=True)

    def _distances(self, queries: Queries) -> list[NDArray[np.float32]]:
        """Distances of queries to all training windows [N, M], a block of queries at a time."""
        squares = np.square(self.pairs).sum(axis=1)
        blocks = []
        for block in queries.blocks(_BLOCK):
            pairs = _scaled_pairs(block.initial, block.goal)
            # |a - b|² = |a|² + |b|² - 2 a·b
            squared = (
                squares + np.square(pairs).sum(axis=1, keepdims=True) - 2 * pairs @ self.pairs.T
            )
            blocks.append(np.sqrt(np.maximum(squared, 0)))
        return blocks


def _scaled_pairs(initial: NDArray[np.float32], goal: NDArray[np.float32]) -> NDArray[np.float32]:
    """Both observations of each window at unit length, side by side, [N, 2 E]."""
    tiny = np.finfo(np.float32).tiny
    norms = (
        np.linalg.norm(observations, axis=1, keepdims=True) for observations in (initial, goal)
    )
    return np.concatenate(
        [
            observations / np.maximum(norm, tiny)
            for observations, norm in zip((initial, goal), norms, strict=True)
        ],
        axis=1,
    )


_COUNTS = "frequent.json"


@dataclass(frozen=True, eq=False, repr=False)
class FrequentPlanner(Sized, BasePlanner):
    """Plans the sequences that training windows of the task show most often.

    Ties are ordered by which came first. The energy of a plan is minus the logarithm of its share;
    its probability is the share times the task's probability. Tasks without training windows get no
    plan.
    """

    task_model: TaskModel
    # task → sequences and counts, most frequent first
    counts: Mapping[int, list[tuple[list[int], int]]]
    abilities: ClassVar[Abilities] = FREQUENT_ABILITIES
    name = "most frequent window"

    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: ClassifierSettings, **options: Any
    ) -> Fitted[Self]:
        """Count sequences, and train the task classifier."""
        if len(train.taxonomy.tasks) == 1:  # its probability is 1 by any weights
            training = settings.classifier_training
            short = training.optimiser.model_copy(update={"epochs": 1})
            training = training.model_copy(update={"optimiser": short})
            settings = settings.model_copy(update={"classifier_training": training})
        task_model, results = TaskModel.train(train, val, settings, **options)
        return Fitted(cls.counted(train, task_model), results)

    @classmethod
    def counted(cls, train: Windows, task_model: TaskModel) -> Self:
        """A planner that counts training windows and predicts tasks by a trained classifier."""
        counts = {}
        for task in np.unique(train.tasks).tolist():
            counter = Counter(tuple(row) for row in train.actions[train.tasks == task].tolist())
            counts[task] = [(list(actions), count) for actions, count in counter.most_common()]
        return cls(task_model, counts)

    @classmethod
    def load(cls, folder: Path | str, *, settings: Any, **options: Any) -> Self:
        """Load the planner that was saved in a folder."""
        folder = Path(folder)
        kept = read_json(folder / _COUNTS, "Fit the planner again.", RunError)["counts"]
        task_model = TaskModel.load(folder, settings=settings, **options)
        return cls(task_model, {int(task): rows for task, rows in kept.items()})

    def save(self, folder: Path | str) -> None:
        """Write counts and task classifier."""
        counts = {str(task): rows for task, rows in self.counts.items()}
        write_json(Path(folder) / _COUNTS, {"counts": counts})
        self.task_model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the task classifier."""
        return self.task_model.parameters

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        return self.task_model.shape

    def marginals(self, queries: Queries) -> Marginals:
        """The classifier's probabilities of tasks."""
        return Marginals(tasks=self.task_model.probabilities(queries))

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """The most frequent sequences of each query's task."""
        tasks, sure = queries.tasks, np.ones(len(queries))
        if tasks is None:
            shares = self.task_model.probabilities(queries)
            tasks, sure = shares.argmax(axis=1), shares.max(axis=1)
        return [
            self._best(int(task), float(probability), top_k)
            for task, probability in zip(tasks, sure, strict=True)
        ]

    def _best(self, task: int, probability: float, top_k: int) -> Plans:
        counts = self.counts.get(task, [])
        total, best = sum(count for _, count in counts), counts[:top_k]
        energies = -np.log([count / total for _, count in best])
        actions = np.array([actions for actions, _ in best], dtype=np.int64)
        return Plans(
            actions=actions.reshape(-1, self.horizon),
            energies=energies,
            scores=energies,
            evaluated=SearchCost(0, len(counts)),
            exact=True,
            probabilities=probability * np.exp(-energies),
            task_probabilities=np.full(len(best), probability),
            searched_mass=1.0,
        )
