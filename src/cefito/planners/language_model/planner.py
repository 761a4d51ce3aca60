"""Planning by a language model, given what trained networks recognise at the two ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

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
    Ranked,
    Request,
    first_request,
    most_probable,
    probable_successors,
)
from cefito.planners.language_model.server import Server, check_settings
from cefito.planners.network import Sized
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.shared.graph import transition_probabilities
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
    """Asks a language model for the steps of each query; subclasses choose the prompt's facts.

    The prompt states in words what a step model and a task classifier recognise in the query's
    observations; the step model and the graph are PKG's. Plans may contain the task's actions in
    training windows and the recognised ends. Facts are computed query by query: a request does not
    depend on other queries, and is answered once (`ResponseCache`).

    An answer is one plan, of energy 0, whatever `top_k` is. An invalid answer is followed by a
    repair request, and finally replaced by PKG's plan; `Plans.reply` says which.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    ends_title: ClassVar[str]
    fixed_ends: ClassVar[bool]
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
        """Title in tables: the facts in its prompts, and the model."""
        more = " + PKG" * self.config.graph
        return f"LLM, {self.ends_title}{more} ({self.config.model})"

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
        transitions = transition_probabilities(self.pkg.counts) if self.config.graph else None
        return [
            first_request(self._context(query, transitions), self.names, self.horizon, self.config)
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

    def _context(self, query: Queries, transitions: NDArray[np.float64] | None) -> PromptContext:
        """Return the facts that the prompt of one query states."""
        tasks = self._tasks(query)
        first, last = self._ends(query)
        context = PromptContext(
            tasks=tasks,
            task_actions={task: self.task_actions[task] for task, _ in tasks},
            first=first,
            last=last,
            fixed_ends=self.fixed_ends or query.ends is not None,
            true_ends=query.ends is not None,
            true_task=query.tasks is not None,
        )
        if transitions is None:
            return context
        successors = probable_successors(transitions, context.actions, self.config.successors)
        return replace(context, successors=successors)

    def _tasks(self, query: Queries) -> Ranked:
        if query.tasks is not None:
            return ((int(query.tasks[0]), 1.0),)
        shares = np.exp(self.task_model.log_probabilities(query)[0].astype(np.float64))
        return most_probable(shares, 1 if self.fixed_ends else self.config.tasks)

    def _ends(self, query: Queries) -> tuple[Ranked, Ranked]:
        if query.ends is not None:
            first, last = query.ends[0].tolist()
            return ((first, 1.0),), ((last, 1.0),)
        logits = self.pkg.logits(query)[0].astype(np.float64)  # [2, K]
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))  # softmax over actions
        shares /= shares.sum(axis=1, keepdims=True)
        count = 1 if self.fixed_ends else self.config.candidates
        return most_probable(shares[0], count), most_probable(shares[1], count)


class LlmEndsPlanner(LlmPlanner):
    """States the most probable task and ends; the language model chooses the steps between.

    Probably so were the text-model rows of ViterbiPlanNet (arXiv 2603.04265) made, which does not
    say. At T = 2 nothing is left to choose, but the model is asked all the same.
    """

    ends_title = "recognised ends"
    fixed_ends = True


class LlmRankedPlanner(LlmPlanner):
    """States several candidate ends and tasks with their probabilities.

    The language model chooses all steps, and so can correct an end that was recognised wrongly.
    """

    ends_title = "ranked ends"
    fixed_ends = False
