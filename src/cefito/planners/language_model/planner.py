"""Planning by a language model, told what trained networks recognise at the two ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax

from cefito.data.windows import Windows, action_space
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.planners.base import Abilities, Fitted, Marginals, Queries, Shape
from cefito.planners.base_planner import BasePlanner, check_queries
from cefito.planners.language_model.method import ABILITIES, TITLES, LlmConfig, LlmSettings
from cefito.planners.language_model.prompt import Ranked, Request, make_request, most_probable
from cefito.planners.language_model.server import Reply, ask_all, check_server
from cefito.planners.network import Sized
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.shared.task_model import TaskModel
from cefito.planners.shared.transitions import transition_probabilities
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans, SearchCost

_FILE = "llm.json"


@dataclass(frozen=True, eq=False, repr=False)
class LlmPlanner(Sized, BasePlanner):
    """Asks a language model for the steps of each query; `llm.told` says what it is told.

    The request names the likeliest task, by a task classifier, its actions in training windows and
    the number of steps. It may tell the likeliest first and last actions by PKG's step model,
    candidates of them and of the task, the graph of transitions, or show both pictures. A request
    does not depend on other queries, and is answered once.

    An answer is one plan, of energy 0, whatever `top_k` is. After invalid answers it is PKG's, with
    the same ends; `Plans.reply` says so. The rows of language models that ViterbiPlanNet (arXiv
    2603.04265) published do not say what these were told.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    pkg: PkgPlanner
    task_model: TaskModel
    task_names: tuple[str, ...]
    action_names: tuple[str, ...]
    task_actions: tuple[tuple[int, ...], ...]  # in training windows, else in the taxonomy
    config: LlmConfig

    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: LlmSettings, **options: Any
    ) -> Fitted[Self]:
        """Train the step model and the task classifier, count transitions; ask nothing."""
        check_server(settings.llm)
        pkg = PkgPlanner.fit(train, val, settings=settings, **options)
        task_model, results = TaskModel.train(train, val, settings, **options)
        tasks = tuple(" ".join(task.name.split()) for task in train.taxonomy.tasks)
        names = tuple(" ".join(action.name.split()) for action in train.taxonomy.actions)
        actions = action_space(train, "training").actions
        planner = cls(pkg.planner, task_model, tasks, names, actions, settings.llm)
        return Fitted(planner, {**pkg.trainings, **results})

    @classmethod
    def load(cls, folder: Path | str, *, settings: LlmSettings, **options: Any) -> Self:
        """Load a saved planner."""
        saved = read_json(Path(folder) / _FILE, "Fit the planner again.", RunError)
        return cls(
            PkgPlanner.load(folder, settings=settings, **options),
            TaskModel.load(folder, settings=settings, **options),
            tuple(saved["tasks"]),
            tuple(saved["actions"]),
            tuple(map(tuple, saved["task_actions"])),
            settings.llm,
        )

    def save(self, folder: Path | str) -> None:
        """Write the networks, the graph and the names."""
        names = {"tasks": self.task_names, "actions": self.action_names}
        write_json(Path(folder) / _FILE, names | {"task_actions": self.task_actions})
        self.pkg.save(folder)
        self.task_model.save(folder)

    @property
    def name(self) -> str:
        """Title in tables."""
        return f"language model, {TITLES[self.config.told]}"

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the trained networks; the language model's are unknown."""
        return self.pkg.parameters | self.task_model.parameters

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        return self.pkg.shape

    def marginals(self, queries: Queries) -> Marginals:
        """Return the classifier's probabilities of tasks."""
        return Marginals(tasks=self.task_model.probabilities(queries))

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """Return the plan that the language model names for each query, after `stop` PKG's."""
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        asked = queries.blocks(1)
        pictures: list[tuple[str, ...]] = [()] * len(asked)
        if self.config.told == "pictures":
            from cefito.planners.language_model.pictures import read_pictures

            pictures = [*read_pictures(queries)]
        requests = list(map(self.request, asked, pictures))
        replies = ask_all(requests, self.config, stop=stop, progress=progress)
        return list(map(self._plans, replies, asked))

    def _plans(self, reply: Reply, query: Queries) -> Plans:
        plan = reply.plan or self.pkg.plan(query, 1)[0].actions[0]
        tokens = sum(
            response.prompt_tokens + response.completion_tokens for response in reply.responses
        )
        zero = np.zeros(1)
        actions = np.array([plan], dtype=np.int64)  # [1, T]
        return Plans(actions, zero, zero, SearchCost(tokens, 0), exact=False, reply=reply)

    def request(self, query: Queries, pictures: tuple[str, ...] = ()) -> Request:
        """Return the request for one query, with the pictures that it shows."""
        told, count = self.config.told, self.config.candidates
        probabilities = self.task_model.probabilities(query)[0]
        if query.tasks is not None:
            probabilities = np.eye(len(probabilities))[query.tasks[0]]
        tasks = most_probable(probabilities, self.config.tasks if told == "ranked" else 1)
        ends: list[Ranked] = []
        if told in ("ends", "graph", "ranked"):
            shares = softmax(self.pkg.logits(query)[0].astype(np.float64), axis=1)  # [2, K]
            ends = [most_probable(row, count if told == "ranked" else 1) for row in shares]
        return make_request(
            self.config,
            (self.task_names, self.action_names),
            actions=(action for task, _ in tasks for action in self.task_actions[task]),
            horizon=self.horizon,
            tasks=tasks,
            ends=ends,
            transitions=transition_probabilities(self.pkg.counts) if told == "graph" else None,
            pictures=pictures,
        )
