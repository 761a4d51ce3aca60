"""The most frequent training windows of the task: the best plans if only the task is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.planners.base import Abilities, Fitted, Marginals, Queries, Shape
from cefito.planners.base_planner import BasePlanner
from cefito.planners.network import Sized
from cefito.planners.shared.settings import ClassifierSettings
from cefito.planners.shared.task_model import TaskModel
from cefito.planners.simple.method import FREQUENT_ABILITIES
from cefito.search.problem import Plans, SearchCost

_FILE = "frequent.json"


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
        cls, train: Windows, val: Windows, *, settings: ClassifierSettings, **given: Any
    ) -> Fitted[Self]:
        """Count sequences, and train the task classifier."""
        task_model, results = TaskModel.train(train, val, settings, **given)
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
    def load(cls, folder: Path | str, *, settings: Any, **given: Any) -> Self:
        """Load the planner that was saved in a folder."""
        folder = Path(folder)
        kept = read_json(folder / _FILE, "Fit the planner again.", RunError)["counts"]
        task_model = TaskModel.load(folder, settings=settings, **given)
        return cls(task_model, {int(task): rows for task, rows in kept.items()})

    def save(self, folder: Path | str) -> None:
        """Write counts and task classifier."""
        counts = {str(task): rows for task, rows in self.counts.items()}
        write_json(Path(folder) / _FILE, {"counts": counts})
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
