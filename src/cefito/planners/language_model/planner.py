"""Planning by a language model that is told what our own models recognise at the two ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from cefito.data.action_space import action_space
from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.files import read_json, write_json
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    BasePlanner,
    Description,
    Fitted,
    LanguageModel,
    Queries,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.language_model.dialogue import Asked, ask_all
from cefito.planners.language_model.prompt import PROMPT, Names, Request, first_request
from cefito.planners.language_model.prompt_context import (
    PromptContext,
    Ranked,
    likeliest,
    listed_successors,
)
from cefito.planners.language_model.server import Server, check_asking
from cefito.planners.language_model.settings import LlmConfig, LlmSettings
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.shared.graph import transition_probabilities
from cefito.planners.shared.task_model import TaskModel
from cefito.planners.simple.nearest import NearestPlanner
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, Reply, SearchCost
from cefito.settings import Record

__all__ = ["LlmEndsPlanner", "LlmPlanner", "LlmRankedPlanner"]

_FILE = "llm.json"
_REMEDY = "Fit the planner again."
_Id = Annotated[int, Field(ge=0)]


class _Kept(Record):
    """What is kept: names, and the actions of each task in training."""

    tasks: list[str]
    actions: list[str]
    task_actions: list[list[_Id]]


@dataclass(frozen=True, eq=False, repr=False)
class LlmPlanner(BasePlanner):
    """Asks a language model for the steps of each query; what it is told, its subclasses say.

    A language model cannot see observations. It is told in words what a step model and a task
    classifier recognise in them, both trained on training windows: the step model is that of PKG,
    so that the row of PKG shows what the graph makes of the same ends. Actions are those of the
    task in training windows, those recognised at the ends, and those of the examples, if any.
    What is recognised is computed query by query, so that a request is the same to the letter
    whatever it is asked beside, and is answered once (`response_cache`).

    Answers hold `llm.plans` plans, one by default, however many are asked for. Invalid ones are
    asked for again, then read as far as they can be; where that gives nothing, the plan is PKG's.
    `Plans.reply` says which it was. The energy of a plan is its place in the answer: there is no
    likelihood.

    Attributes:
        pkg: The step model, and the graph of transitions.
        task_model: Predicts tasks.
        nearest: The training windows that examples are taken from; None where none are told.
        names: Of tasks and actions.
        task_actions: Actions that training windows of each task show, or that the taxonomy lists
            where it has none.
        config: The model and how it is asked.
    """

    abilities: ClassVar[Abilities] = Abilities(true_ends=True)
    told: ClassVar[str]
    pkg: PkgPlanner
    task_model: TaskModel
    nearest: NearestPlanner | None
    names: Names
    task_actions: tuple[tuple[int, ...], ...]
    config: LlmConfig

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: LlmSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the step model and the task classifier, count transitions; nothing is asked yet.

        Raises:
            ConfigError: No model is named, or windows of a single action.
        """
        if train.horizon < 2:
            raise ConfigError(
                "horizon 1: a language model is told the first and the last action, and there is "
                "one. Choose a horizon of 2 or more.",
                setting="horizon",
            )
        check_asking(settings.llm)
        pkg = PkgPlanner.fit(train, val, settings=settings, seed=seed, context=context)
        task_model, result = TaskModel.fit(
            train, val, settings=settings, seed=seed, context=context
        )
        nearest = NearestPlanner.fit(train, val).planner if settings.llm.examples else None
        taxonomy = train.taxonomy
        planner = cls(
            pkg.planner,
            task_model,
            nearest,
            Names.of(
                [task.name for task in taxonomy.tasks],
                [action.name for action in taxonomy.actions],
            ),
            action_space(train, "training").actions,
            settings.llm,
        )
        return Fitted(planner, {**pkg.trainings, TaskModel.title: result})

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: LlmSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or those of another configuration.
        """
        folder = Path(folder)
        path = folder / _FILE
        value = read_json(path, _REMEDY, RunError)
        pkg = PkgPlanner.load(folder, settings=settings, context=context)
        task_model = TaskModel.load(folder, config=settings.classifier, device=context.device)
        nearest = NearestPlanner.load(folder) if settings.llm.examples else None
        try:
            kept = _Kept.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise RunError(
                f"{path}: holds no names and actions ({place}: {first['msg']}). {_REMEDY}"
            ) from problem
        known = len(kept.actions)
        if (
            len(kept.tasks) != len(kept.task_actions)
            or len(kept.tasks) != task_model.task_count
            or known != pkg.vocabulary.actions
            or any(not row or max(row) >= known for row in kept.task_actions)
        ):
            raise RunError(f"{path}: is of other tasks or actions than its networks. {_REMEDY}")
        task_actions = tuple(tuple(sorted(set(row))) for row in kept.task_actions)
        names = Names.of(kept.tasks, kept.actions)
        return cls(pkg, task_model, nearest, names, task_actions, settings.llm)

    def save(self, folder: Path | str) -> None:
        """Write the networks, the graph, the names and, where examples are told, the windows."""
        folder = Path(folder)
        kept = _Kept(
            tasks=list(self.names.tasks),
            actions=list(self.names.actions),
            task_actions=[list(row) for row in self.task_actions],
        )
        write_json(folder / _FILE, kept.model_dump(mode="json"))
        self.pkg.save(folder)
        self.task_model.save(folder)
        if self.nearest is not None:
            self.nearest.save(folder)

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called in tables: what it is told, and the model."""
        more = " + PKG" * self.config.graph + " + examples" * bool(self.config.examples)
        return f"LLM, {self.told}{more} ({self.config.model})"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the networks that recognise; the language model's are not known."""
        return {**self.pkg.parameters, TaskModel.title: self.task_model.parameters}

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return self.pkg.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.pkg.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(len(self.names.tasks), len(self.names.actions))

    def describe(self) -> Description:
        """What it is made of, the language model among it."""
        asks = LanguageModel(model=self.config.model, prompt=PROMPT)
        return super().describe().model_copy(update={"language_model": asks})

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The classifier's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def requests(self, queries: Queries) -> list[Request]:
        """The request for each query; nothing is asked.

        Raises:
            DataError: Given tasks or ends that it does not know.
            RunError: Observations of another dimension.
        """
        queries.check_tasks(len(self.names.tasks))
        queries.check_ends(len(self.names.actions))
        transitions = transition_probabilities(self.pkg.counts) if self.config.graph else None
        return [
            first_request(self._sight(query, transitions), self.names, self.horizon, self.config)
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
        """The plans that the language model names, at most `llm.plans` for each query.

        Before the first request it is seen that the budget allows as many as may be needed. Where
        it is stopped, queries that were not asked get PKG's plans.

        Raises:
            ConfigError: `top_k` below 1, constraints, more requests than the budget allows, or the
                server does not take them.
            DataError: Given tasks or ends that it does not know.
            RunError: Observations of another dimension, or the server fails.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        requests = self.requests(queries)
        found = ask_all(requests, self.config, stop=stop, progress=progress)
        return [
            self._plans(asked, query, top_k)
            for asked, query in zip(found, queries.blocks(1), strict=True)
        ]

    def _plans(self, asked: Asked | None, query: Queries, top_k: int) -> Plans:
        sequences = asked.sequences if asked is not None else ()
        reply = self._reply(asked)
        if sequences:
            actions = np.array(sequences, dtype=np.int64)
        else:
            (walks,) = self.pkg.plan(query, self.config.plans)
            actions = walks.actions
        places = np.arange(len(actions), dtype=np.float64)[:top_k]
        return Plans(
            actions=actions[:top_k],
            energies=places,
            scores=places,
            evaluated=SearchCost(reply.prompt_tokens + reply.completion_tokens, 0),
            exact=False,
            reply=reply,
        )

    def _reply(self, asked: Asked | None) -> Reply:
        model, host = self.config.model, Server.of(self.config).host
        if asked is None:
            return Reply("unasked", model, host)
        mended: Literal["kept", "repaired"] = "repaired" if asked.repaired else "kept"
        return Reply(
            mended if asked.sequences else "replaced",
            model,
            host,
            key=asked.key,
            served=asked.answers[-1].served,
            asked=asked.answers[-1].asked,
            requests=len(asked.answers),
            prompt_tokens=sum(answer.prompt_tokens for answer in asked.answers),
            completion_tokens=sum(answer.completion_tokens for answer in asked.answers),
        )

    def _sight(self, query: Queries, transitions: NDArray[np.float64] | None) -> PromptContext:
        """What is told of one query."""
        tasks = self._tasks(query)
        first, last = self._ends(query)
        sight = PromptContext(
            tasks=tasks,
            task_actions={task: self.task_actions[task] for task, _ in tasks},
            first=first,
            last=last,
            settled=self._settled(query),
            annotated=query.ends is not None,
            known_task=query.tasks is not None,
            examples=self._examples(query, tasks),
        )
        if transitions is None:
            return sight
        listed = listed_successors(transitions, sight.actions, self.config.successors)
        return replace(sight, successors=listed)

    def _examples(self, query: Queries, tasks: Ranked) -> tuple[tuple[int, ...], ...]:
        """What was done in the nearest training windows, of the task where one alone is told."""
        if self.nearest is None:
            return ()
        asked = query.with_task(tasks[0][0]) if len(tasks) == 1 else query
        (plans,) = self.nearest.plan(asked, self.config.examples)
        return tuple(tuple(row) for row in plans.actions.tolist())

    def _tasks(self, query: Queries) -> Ranked:
        if query.tasks is not None:
            return ((int(query.tasks[0]), 1.0),)
        shares = np.exp(self.task_model.log_probabilities(query)[0].astype(np.float64))
        return likeliest(shares, self._task_count())

    def _ends(self, query: Queries) -> tuple[Ranked, Ranked]:
        if query.ends is not None:
            first, last = query.ends[0].tolist()
            return ((first, 1.0),), ((last, 1.0),)
        logits = self.pkg.step_model.logits(query)[0].astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        first, last = (likeliest(row, self._candidates()) for row in shares)
        return first, last

    def _task_count(self) -> int:
        """How many tasks are told."""
        raise NotImplementedError

    def _candidates(self) -> int:
        """How many candidates of each end are told."""
        raise NotImplementedError

    def _settled(self, query: Queries) -> bool:
        """Whether the ends that are told are to be kept."""
        raise NotImplementedError


class LlmEndsPlanner(LlmPlanner):
    """Tells the likeliest task, first and last action; the language model fills in what is between.

    This is PKG with a language model in the place of the graph, and probably what the rows of text
    models in the tables of ViterbiPlanNet (arXiv 2603.04265) are: how they were made is not
    published. At T = 2 there is nothing to fill in, but it is asked all the same.
    """

    told = "recognised ends"

    def _task_count(self) -> int:
        return 1

    def _candidates(self) -> int:
        return 1

    def _settled(self, query: Queries) -> bool:  # noqa: ARG002
        return True


class LlmRankedPlanner(LlmPlanner):
    """Tells several candidates of both ends and the likeliest tasks, with their probabilities.

    The language model chooses all steps, and so can mend an end that was recognised wrongly.
    """

    told = "ranked ends"

    def _task_count(self) -> int:
        return self.config.tasks

    def _candidates(self) -> int:
        return self.config.candidates

    def _settled(self, query: Queries) -> bool:
        return query.ends is not None
