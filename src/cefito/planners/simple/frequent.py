"""The most frequent training windows of the task: what is known once the task is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    BasePlanner,
    Fitted,
    Queries,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.shared.task_model import ClassifierSettings, TaskModel
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.settings import Record

__all__ = ["FrequentPlanner"]

_FILE = "frequent.json"
_REMEDY = "Fit the planner again."
_Id = Annotated[int, Field(ge=0)]
_Count = Annotated[int, Field(ge=1)]


class _Kept(Record):
    """What is kept: T, and for each task its sequences with their counts."""

    horizon: int = Field(ge=1)
    counts: dict[int, list[tuple[list[_Id], _Count]]]

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        rows = (actions for rows in self.counts.values() for actions, _ in rows)
        if any(len(actions) != self.horizon for actions in rows):
            raise ValueError(f"sequences of other than {self.horizon} actions")
        return self


@dataclass(frozen=True, eq=False, repr=False)
class FrequentPlanner(BasePlanner):
    """Plans the sequences that training windows of the task show most often.

    Ties are ordered by which came first. The energy of a plan is minus the logarithm of its share;
    its probability is the share times the task's probability.
    Tasks without training windows get no plan.

    Attributes:
        task_model: Predicts tasks.
        counts: For each task its sequences with their counts, most frequent first.
        horizon: T.
    """

    task_model: TaskModel
    counts: Mapping[int, tuple[tuple[tuple[int, ...], int], ...]]
    horizon: int
    abilities: ClassVar[Abilities] = Abilities(probabilities=True)
    name = "most frequent window"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: ClassifierSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Count sequences, and train the task classifier."""
        task_model, result = TaskModel.fit(
            train, val, settings=settings, seed=seed, context=context
        )
        return Fitted(cls.counted(train, task_model), {TaskModel.title: result})

    @classmethod
    def counted(cls, train: Windows, task_model: TaskModel) -> Self:
        """A planner that counts training windows and predicts tasks by a trained classifier."""
        counts = {}
        for task in np.unique(train.tasks):
            counter = Counter(tuple(row) for row in train.actions[train.tasks == task].tolist())
            counts[int(task)] = tuple(counter.most_common())
        return cls(task_model, counts, train.horizon)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: ClassifierSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or weights of another configuration.
        """
        folder = Path(folder)
        value = read_json(folder / _FILE, _REMEDY, RunError)
        task_model = TaskModel.load(folder, config=settings.classifier, device=context.device)
        try:
            kept = _Kept.model_validate_json(json.dumps(value), strict=True)
            counts = {
                task: tuple((tuple(actions), count) for actions, count in rows)
                for task, rows in kept.counts.items()
            }
            return cls(task_model, counts, kept.horizon)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise RunError(
                f"{folder / _FILE}: holds no counts ({place}: {first['msg']}). {_REMEDY}"
            ) from problem

    def save(self, folder: Path | str) -> None:
        """Write counts and task classifier."""
        folder = Path(folder)
        counts = {str(task): rows for task, rows in self.counts.items()}
        write_json(folder / _FILE, {"horizon": self.horizon, "counts": counts})
        self.task_model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier."""
        return {TaskModel.title: self.task_model.parameters}

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.task_model.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        rows = (actions for rows in self.counts.values() for actions, _ in rows)
        actions = 1 + max((action for actions in rows for action in actions), default=-1)
        tasks = max(self.task_model.task_count, 1 + max(self.counts, default=-1))
        return Vocabulary(tasks, actions, least=True)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The classifier's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The most frequent sequences of each query's task."""
        check_queries(self, queries, top_k, constraints)
        tasks = self.predict_tasks(queries)
        sure = np.ones(len(queries))
        if queries.tasks is None:
            logs = self.task_model.log_probabilities(queries).astype(np.float64)
            sure = np.exp(np.take_along_axis(logs, tasks[:, None], axis=1)[:, 0])
        return [
            self._best(int(task), float(probability), top_k)
            for task, probability in zip(tasks, sure, strict=True)
        ]

    def _best(self, task: int, probability: float, top_k: int) -> Plans:
        counts = self.counts.get(task, ())
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
