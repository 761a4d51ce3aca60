"""One query, one answer: plans with names and energies, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.data.names import find_task, in_words
from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError
from cefito.inference.named_constraints import NamedConstraints
from cefito.inference.observations import check_width
from cefito.planners.base import (
    UNCONSTRAINED,
    Planner,
    Queries,
    check_min_probability,
    check_task_given,
)
from cefito.progress import Progress, silent
from cefito.runs.matching import DatasetName
from cefito.runs.run import Run
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans
from cefito.settings import Record

__all__ = [
    "Answer",
    "PlannedSequence",
    "answer",
    "answer_of",
    "asked_of",
    "in_names",
    "planned_sequences",
]


class TaskAnswer(Record):
    """The task of the best plan; all None where the planner has no notion of tasks.

    Attributes:
        id: Its id.
        name: Its name.
        source: Whether it was predicted or given.
        probability: Of the task, whatever its sequence; None where it was given or is not known.
    """

    id: int | None
    name: str | None
    source: Literal["predicted", "given"] | None
    probability: float | None


class PlannedSequence(Record):
    """One plan.

    Attributes:
        actions: Action ids.
        names: Their names.
        energy: Its energy.
        score: What plans are ordered by, lower is better.
        probability: Of plan and task, given the observations; None where the planner has none.
        task: Id of the task that it was found for, where there is one.
    """

    actions: list[int]
    names: list[str]
    energy: float
    score: float
    probability: float | None
    task: int | None


class EffortAnswer(Record):
    """What the search cost: tokens through networks, and sequences whose energy was computed."""

    token_forwards: int
    leaves: int


class SearchAnswer(Record):
    """How it was searched.

    Attributes:
        method: Name of the search; None where the planner has none.
        tasks: How many tasks were searched.
        interrupted: Whether it was stopped before its end.
    """

    method: str | None
    tasks: int
    interrupted: bool


class ReplyAnswer(Record):
    """How a language model answered, as in `cefito.planners.language_model.reply.Reply`.

    Attributes:
        outcome: "kept", "repaired", "replaced" (the plans are not of the model) or "unasked".
        model: The model that was asked for.
        host: Server that was asked.
        served: The model that answered, as the server calls it.
        asked: When the answer was given, UTC, ISO 8601.
    """

    outcome: Literal["kept", "repaired", "replaced", "unasked"]
    model: str
    host: str
    served: str
    asked: str


class Truth(Record):
    """The annotated actions, with their names."""

    actions: list[int]
    names: list[str]


class Answer(Record):
    """The plans of one query.

    Attributes:
        task: Of the best plan.
        plans: Best first.
        evaluated: What they cost.
        exact: Whether no other allowed sequence is better.
        sure: Whether the best plan is as probable as was asked for; None where nothing was asked.
        searched_mass: As in `cefito.search.problem.Plans`.
        search: How it was searched.
        weights: Of the objective's terms; None where the planner has none.
        truth: The annotated actions, where they are known.
        dataset: Where the query came from, if from another data set than that of the run.
        reply: How the language model answered, of planners that ask one.
    """

    task: TaskAnswer
    plans: list[PlannedSequence]
    evaluated: EffortAnswer
    exact: bool
    sure: bool | None
    searched_mass: float | None
    search: SearchAnswer
    weights: dict[str, float] | None
    truth: Truth | None = None
    dataset: DatasetName | None = None
    reply: ReplyAnswer | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is annotated, where it came from and who answered only where known."""
        absent = {name for name in ("truth", "dataset", "reply") if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=absent)


def answer(
    run: Run,
    query: Queries,
    *,
    task: int | str | None = None,
    top_k: int = 5,
    constraints: Constraints | NamedConstraints = UNCONSTRAINED,
    min_probability: float | None = None,
    truth: NDArray[np.int64] | None = None,
    dataset: DatasetName | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress = silent,
) -> Answer:
    """Plan one query.

    Args:
        run: A run of any method.
        query: One query.
        task: Id or name of the task instead of the predicted one.
        top_k: Plans wanted.
        constraints: What every plan must satisfy, by ids or by names.
        min_probability: How probable the best plan must be for the answer to be sure; all plans are
            listed all the same.
        truth: Annotated actions [T], repeated in the answer.
        dataset: The data set of the query, where it is not that of the run; repeated in the answer.
        stop: Asked now and then; once it says so, the answer holds the best plans met so far,
            perhaps none.
        progress: Shows progress.

    Raises:
        ConfigError: Unknown task or action, a task for a planner that makes no use of it,
            constraints that the planner cannot obey or that cannot be satisfied, top_k below 1, or
            a least probability that is none or that the planner's plans cannot be held to.
        RunError: Observations of another dimension.
    """
    planner = run.planner
    query, constraints = asked_of(run, query, task=task, constraints=constraints)
    if min_probability is not None:
        check_min_probability(planner, min_probability)
    try:
        (plans,) = planner.plan(query, top_k, constraints=constraints, stop=stop, progress=progress)
    except ConfigError as problem:
        raise in_names(problem, run.taxonomy) from problem
    return answer_of(
        run,
        query,
        plans,
        min_probability=min_probability,
        truth=truth,
        dataset=dataset,
        interrupted=stop is not None and stop(),
    )


def asked_of(
    run: Run,
    query: Queries,
    *,
    task: int | str | None = None,
    constraints: Constraints | NamedConstraints = UNCONSTRAINED,
) -> tuple[Queries, Constraints]:
    """A query with its task, and constraints by ids: what a run's planner is then asked.

    Arguments as in `answer`.

    Raises:
        ConfigError: Unknown task or action, or a task for a planner that makes no use of it.
        RunError: Observations of another dimension, where the run says how they are joined.
    """
    taxonomy = run.taxonomy
    check_width(run, query.initial.shape[-1], "observations have")
    given = None if task is None else find_task(taxonomy, task)
    if given is not None:
        check_task_given(run.planner)
        query = query.with_task(given)
    if isinstance(constraints, NamedConstraints):
        constraints = constraints.resolved(taxonomy, task=given)
    _check_actions(constraints, taxonomy)
    return query, constraints


def in_names(problem: ConfigError, taxonomy: Taxonomy) -> ConfigError:
    """An error of a planner, which knows ids only, with the names of actions behind them."""
    return ConfigError(in_words(str(problem), taxonomy), setting=problem.setting)


def answer_of(
    run: Run,
    query: Queries,
    plans: Plans,
    *,
    min_probability: float | None = None,
    truth: NDArray[np.int64] | None = None,
    dataset: DatasetName | None = None,
    interrupted: bool = False,
) -> Answer:
    """The answer to a query that was planned, perhaps together with others.

    Args:
        run: The run that planned it.
        query: The query, with its task where that was given.
        plans: Its plans.
        min_probability: As in `answer`, checked before.
        truth: As in `answer`.
        dataset: As in `answer`.
        interrupted: Whether the search was stopped before its end.
    """
    taxonomy, planner = run.taxonomy, run.planner
    tasks = _tasks(planner, query, plans)
    description = planner.describe()
    return Answer(
        task=_task_answer(
            tasks[0],
            taxonomy,
            given=query.tasks is not None,
            probability=_first(plans.task_probabilities),
        ),
        plans=planned_sequences(plans, tasks[: len(plans)], taxonomy),
        evaluated=EffortAnswer(**vars(plans.evaluated)),
        exact=plans.exact,
        sure=(
            None
            if min_probability is None
            else (_first(plans.probabilities) or 0.0) >= min_probability and len(plans) > 0
        ),
        searched_mass=plans.searched_mass,
        search=SearchAnswer(
            method=description.search.method if description.search else None,
            tasks=plans.searched,
            interrupted=interrupted,
        ),
        weights=description.weights,
        truth=(
            None if truth is None else Truth(actions=truth.tolist(), names=taxonomy.names(truth))
        ),
        dataset=dataset,
        reply=_reply(plans),
    )


def _reply(plans: Plans) -> ReplyAnswer | None:
    if plans.reply is None:
        return None
    return ReplyAnswer(**{name: getattr(plans.reply, name) for name in ReplyAnswer.model_fields})


def planned_sequences(
    plans: Plans, tasks: Sequence[int | None], taxonomy: Taxonomy
) -> list[PlannedSequence]:
    """The plans of one query with their names, best first.

    Args:
        plans: What was planned.
        tasks: The task that each plan was found for.
        taxonomy: Names of the actions.
    """
    probabilities = [None] * len(plans)
    if plans.probabilities is not None:
        probabilities = plans.probabilities.tolist()
    return [
        PlannedSequence(
            actions=actions.tolist(),
            names=taxonomy.names(actions),
            energy=float(energy),
            score=float(score),
            probability=probability,
            task=task,
        )
        for actions, energy, score, probability, task in zip(
            plans.actions, plans.energies, plans.scores, probabilities, tasks, strict=True
        )
    ]


def _tasks(planner: Planner, query: Queries, plans: Plans) -> list[int] | list[None]:
    """The task of each plan; where there is no plan, that of the query alone."""
    if plans.tasks is not None and len(plans):
        return [int(task) for task in plans.tasks]
    count = max(len(plans), 1)
    predicted = planner.predict_tasks(query)
    return [None] * count if predicted is None else [int(predicted[0])] * count


def _task_answer(
    task: int | None, taxonomy: Taxonomy, *, given: bool, probability: float | None
) -> TaskAnswer:
    if task is None:
        return TaskAnswer(id=None, name=None, source=None, probability=None)
    return TaskAnswer(
        id=task,
        name=taxonomy.tasks[task].name,
        source="given" if given else "predicted",
        probability=None if given else probability,
    )


def _first(values: NDArray[np.float64] | None) -> float | None:
    return None if values is None or not len(values) else float(values[0])


def _check_actions(constraints: Constraints, taxonomy: Taxonomy) -> None:
    """Refuse actions that no task has; of those that other tasks have, a search decides."""
    named = [
        *(action for _, action in constraints.pinned),
        *constraints.required,
        *constraints.forbidden,
        *(action for pair in constraints.before for action in pair),
    ]
    for action in named:
        if action not in range(len(taxonomy.actions)):
            raise ConfigError(
                f"unknown action {action}; there are 0 to {len(taxonomy.actions) - 1}."
            )
