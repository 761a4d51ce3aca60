"""Planning by a language model, given what trained networks recognise at the two ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cefito.data.windows import Windows, action_space
from cefito.errors import ConfigError, RunError
from cefito.files import read_json, write_json
from cefito.planners.base import (
    Abilities,
    Description,
    Fitted,
    LanguageModel,
    Marginals,
    Queries,
    Shape,
)
from cefito.planners.base_planner import BasePlanner
from cefito.planners.checks import check_queries
from cefito.planners.language_model.dialogue import Completion, ask_all
from cefito.planners.language_model.method import ABILITIES, LlmConfig, LlmSettings
from cefito.planners.language_model.prompt import (
    PROMPT_VERSION,
    Names,
    PromptContext,
    Request,
    first_request,
)
from cefito.planners.language_model.server import Server, check_settings
from cefito.planners.network import Sized
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.shared.task_model import TaskModel
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans, SearchCost

_FILE = "llm.json"


@dataclass(frozen=True)
class Reply:
    """The origin of a query's plans.

    Outcomes: "kept", the first answer was valid; "repaired", another answer was; "replaced", the
    plans are PKG's; "unasked", so too, after a stop.
    """

    outcome: Literal["kept", "repaired", "replaced", "unasked"]
    model: str  # as requested
    host: str
    key: str = ""  # of the request in the cache
    served: str = ""  # the model that answered, as the server calls it
    asked: str = ""  # time of the response, UTC, ISO 8601
    requests: int = 0  # including repairs
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class LlmPlanner(Sized, BasePlanner):
    """Asks a language model for the steps between the recognised ends of each query.

    The prompt states in words the most probable task and ends in the query's observations, by a
    task classifier and PKG's step model. Plans may contain the task's actions in training windows
    and the ends. Facts are computed query by query: a request does not depend on other queries, and
    is answered once (`ResponseCache`). At T = 2 nothing is left to choose, but the model is asked
    all the same.

    An answer is one plan, of energy 0, whatever `top_k` is. An invalid answer is followed by a
    repair request, and finally replaced by PKG's plan; `Plans.reply` says which.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    pkg: PkgPlanner
    task_model: TaskModel
    names: Names
    task_actions: tuple[tuple[int, ...], ...]  # in training windows, else in the taxonomy
    config: LlmConfig

    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: LlmSettings, **given: Any
    ) -> Fitted[Self]:
        """Train the step model and the task classifier, count transitions; ask nothing."""
        check_settings(settings.llm)
        if train.horizon < 2:
            raise ConfigError(
                "horizon 1: language models plan from a first to a last action. Choose a horizon "
                "of 2 or more.",
                setting="horizon",
            )
        pkg = PkgPlanner.fit(train, val, settings=settings, **given)
        task_model, results = TaskModel.train(train, val, settings, **given)
        names = Names.of(
            [task.name for task in train.taxonomy.tasks],
            [action.name for action in train.taxonomy.actions],
        )
        actions = action_space(train, "training").actions
        planner = cls(pkg.planner, task_model, names, actions, settings.llm)
        return Fitted(planner, {**pkg.trainings, **results})

    @classmethod
    def load(cls, folder: Path | str, *, settings: LlmSettings, **given: Any) -> Self:
        """Load a saved planner."""
        folder = Path(folder)
        saved = read_json(folder / _FILE, "Fit the planner again.", RunError)
        return cls(
            PkgPlanner.load(folder, settings=settings, **given),
            TaskModel.load(folder, settings=settings, **given),
            Names.of(saved["tasks"], saved["actions"]),
            tuple(tuple(actions) for actions in saved["task_actions"]),
            settings.llm,
        )

    def save(self, folder: Path | str) -> None:
        """Write the networks, the graph and the names."""
        folder = Path(folder)
        names = {"tasks": self.names.tasks, "actions": self.names.actions}
        write_json(folder / _FILE, names | {"task_actions": self.task_actions})
        self.pkg.save(folder)
        self.task_model.save(folder)

    @property
    def name(self) -> str:
        """Title in tables, with the language model."""
        return f"LLM, recognised ends ({self.config.model})"

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the trained networks; the language model's are unknown."""
        return self.pkg.parameters | self.task_model.parameters

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        return self.pkg.shape

    def describe(self) -> Description:
        """Describe its parts, including the language model."""
        asks = LanguageModel(model=self.config.model, prompt=PROMPT_VERSION)
        return super().describe().model_copy(update={"language_model": asks})

    def marginals(self, queries: Queries) -> Marginals:
        """Return the classifier's probabilities of tasks."""
        return Marginals(tasks=self.task_model.probabilities(queries))

    def requests(self, queries: Queries) -> list[Request]:
        """Return the request for each query, without asking."""
        queries.check_ids("tasks", len(self.names.tasks))
        queries.check_ids("ends", len(self.names.actions))
        return [
            first_request(self._context(query), self.names, self.horizon, self.config)
            for query in queries.blocks(1)
        ]

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """Return the plan that the language model names for each query.

        The budget is checked before the first request. Queries left unasked by `stop` get PKG's
        plans.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        completions = ask_all(self.requests(queries), self.config, stop=stop, progress=progress)
        return [
            self._plans(completion, query)
            for completion, query in zip(completions, queries.blocks(1), strict=True)
        ]

    def _plans(self, completion: Completion | None, query: Queries) -> Plans:
        reply = self._reply(completion)
        if completion is not None and completion.sequence is not None:
            actions = np.array([completion.sequence], dtype=np.int64)  # [1, T]
        else:
            (paths,) = self.pkg.plan(query, 1)
            actions = paths.actions
        return Plans(
            actions=actions,
            energies=np.zeros(1),
            scores=np.zeros(1),
            evaluated=SearchCost(reply.prompt_tokens + reply.completion_tokens, 0),
            exact=False,
            reply=reply,
        )

    def _reply(self, completion: Completion | None) -> Reply:
        names = self.config.model, Server.of(self.config).host
        if completion is None:
            return Reply("unasked", *names)
        valid: Literal["kept", "repaired"] = "repaired" if completion.repaired else "kept"
        responses = completion.responses
        return Reply(
            valid if completion.sequence else "replaced",
            *names,
            key=completion.key,
            served=responses[-1].served,
            asked=responses[-1].asked,
            requests=len(responses),
            prompt_tokens=sum(response.prompt_tokens for response in responses),
            completion_tokens=sum(response.completion_tokens for response in responses),
        )

    def _context(self, query: Queries) -> PromptContext:
        """Return the facts that the prompt of one query states."""
        tasks = self.predict_tasks(query)
        assert tasks is not None
        task = int(tasks[0])
        first, last = self.pkg.predict_ends(query)[0].tolist()
        return PromptContext(
            task=task,
            task_actions=self.task_actions[task],
            first=first,
            last=last,
            true_ends=query.ends is not None,
            true_task=query.tasks is not None,
        )
