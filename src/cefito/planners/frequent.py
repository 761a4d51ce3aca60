"""The most frequent training windows of the predicted task.

What is known without looking at the observations further.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.planners.base import Queries
from cefito.planners.task_model import TaskModel
from cefito.planners.trained import parameters_of, results_of
from cefito.search.problem import Effort, Plans
from cefito.training.trainer import TrainingResult

__all__ = ["FrequentPlanner"]


class FrequentPlanner:
    """Plans the sequences that training windows of the task show most often.

    Ties by which came first.

    The energy of a plan is minus the logarithm of its share. Tasks without training windows get no
    plan.

    Args:
        task_model: Predicts tasks; fitted here unless it has been already.
    """

    name = "most frequent window"

    def __init__(self, *, task_model: TaskModel) -> None:
        self.task_model = task_model
        self._counts: dict[int, list[tuple[list[int], int]]] = {}
        self._horizon = 0

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier."""
        return parameters_of(self.task_model)

    @property
    def results(self) -> dict[str, TrainingResult]:
        """That of the task classifier, where it was fitted here."""
        return results_of(self.task_model)

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Count sequences, and fit the task model where that is still to do."""
        if not self.task_model.fitted:
            self.task_model.fit(train, val, seed=seed)
        self._horizon, self._counts = train.horizon, {}
        for task in np.unique(train.tasks):
            counter = Counter(tuple(row) for row in train.actions[train.tasks == task].tolist())
            self._counts[int(task)] = [
                (list(actions), count) for actions, count in counter.most_common()
            ]

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task model's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The most frequent sequences of each query's task."""
        if not self._counts:
            raise RunError("this planner has not been fitted; call fit or load first.")
        return [
            self._best(self._counts.get(int(task), []), top_k)
            for task in self.predict_tasks(queries)
        ]

    def _best(self, counts: list[tuple[list[int], int]], top_k: int) -> Plans:
        total = sum(count for _, count in counts)
        best = counts[:top_k]
        energies = -np.log([count / total for _, count in best])
        return Plans(
            actions=np.array([actions for actions, _ in best], dtype=np.int64).reshape(
                -1, self._horizon
            ),
            energies=energies,
            scores=energies,
            evaluated=Effort(0, len(counts)),
            exact=True,
        )

    def save(self, folder: Path) -> None:
        """Write counts and task model."""
        if not self._counts:
            raise RunError("this planner has not been fitted; there is nothing to save.")
        write_json(
            folder / "frequent.json",
            {
                "horizon": self._horizon,
                "counts": {str(task): rows for task, rows in self._counts.items()},
            },
        )
        self.task_model.save(folder)

    def load(self, folder: Path) -> None:
        """Read them back."""
        value = read_json(folder / "frequent.json", "Fit the planner again.", RunError)
        self._horizon = value["horizon"]
        self._counts = {
            int(task): [(actions, count) for actions, count in rows]
            for task, rows in value["counts"].items()
        }
        self.task_model.load(folder)
