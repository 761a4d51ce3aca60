"""One query, one answer: plans with names and energies, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.data.names import find_task, in_words
from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError
from cefito.planners.base import UNCONSTRAINED, Planner, Queries, check_min_probability
from cefito.planners.matching import DatasetName
from cefito.planners.named import NamedConstraints
from cefito.planners.observations import check_width
from cefito.planners.run import Run
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans
from cefito.settings import Immutable

__all__ = ["Answer", "PlannedSequence", "answer", "answers", "planned_sequences"]


class TaskAnswer(Immutable):
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


class PlannedSequence(Immutable):
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


class EffortAnswer(Immutable):
    """What the search cost: tokens through networks, and sequences whose energy was computed."""

    token_forwards: int
    leaves: int


class SearchAnswer(Immutable):
    """How it was searched.

    Attributes:
        method: Name of the search; None where the planner has none.
        tasks: How many tasks were searched.
        interrupted: Whether it was stopped before its end.
    """

    method: str | None
    tasks: int
    interrupted: bool


class Truth(Immutable):
    """The annotated actions, with their names."""

    actions: list[int]
    names: list[str]


class Answer(Immutable):
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

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is annotated and where it came from are left out where not known."""
        absent = {name for name in ("truth", "dataset") if getattr(self, name) is None}
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
        ConfigError: Unknown task or action, constraints that the planner cannot obey or that cannot
            be satisfied, top_k below 1, or a least probability that is none or that the planner's
            plans cannot be held to.
        RunError: Observations of another dimension.
    """
    given = None if task is None else find_task(run.taxonomy, task)
    if given is not None:
        query = query.with_task(given)
    if isinstance(constraints, NamedConstraints):
        constraints = constraints.resolved(run.taxonomy, task=given)
    (found,) = answers(
        run,
        query,
        top_k=top_k,
        constraints=constraints,
        min_probability=min_probability,
        stop=stop,
        progress=progress,
    )
    known = (
        None if truth is None else Truth(actions=truth.tolist(), names=run.taxonomy.names(truth))
    )
    return found.model_copy(update={"truth": known, "dataset": dataset})


def answers(
    run: Run,
    queries: Queries,
    *,
    top_k: int = 5,
    constraints: Constraints = UNCONSTRAINED,
    min_probability: float | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress = silent,
) -> list[Answer]:
    """Plan queries of which the same is asked.

    Args:
        run: A run of any method.
        queries: The queries, with their tasks where these are given.
        top_k: As in `answer`, like all that follows.
        constraints: What every plan must satisfy.
        min_probability: How probable each best plan must be for its answer to be sure.
        stop: Asked now and then.
        progress: Shows progress.

    Raises:
        ConfigError: As `answer`.
        DataError: Tasks that there are not.
        RunError: As `answer`.
    """
    taxonomy, planner = run.taxonomy, run.planner
    check_width(run, queries.initial.shape[-1], "observations have")
    _check_actions(constraints, taxonomy)
    if min_probability is not None:
        check_min_probability(planner, min_probability)
    try:
        found = planner.plan(queries, top_k, constraints=constraints, stop=stop, progress=progress)
    except ConfigError as problem:
        message = in_words(str(problem), taxonomy)
        raise ConfigError(message, setting=problem.setting) from problem
    description, stopped = planner.describe(), stop is not None and stop()
    made = []
    for plans, tasks in zip(found, _tasks(planner, queries, found), strict=True):
        likely = _first(plans.probabilities) or 0.0
        made.append(
            Answer(
                task=_task_answer(
                    tasks[0],
                    taxonomy,
                    given=queries.tasks is not None,
                    probability=_first(plans.task_probabilities),
                ),
                plans=planned_sequences(plans, tasks[: len(plans)], taxonomy),
                evaluated=EffortAnswer(**vars(plans.evaluated)),
                exact=plans.exact,
                sure=(
                    None
                    if min_probability is None
                    else likely >= min_probability and len(plans) > 0
                ),
                searched_mass=plans.searched_mass,
                search=SearchAnswer(
                    method=description.search.method if description.search else None,
                    tasks=plans.searched,
                    interrupted=stopped,
                ),
                weights=description.weights,
            )
        )
    return made


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


def _tasks(
    planner: Planner, queries: Queries, found: Sequence[Plans]
) -> list[Sequence[int | None]]:
    """The task of each plan of each query; where a query has no plan, that of the query alone."""
    unnamed = [row for row, plans in enumerate(found) if plans.tasks is None or not len(plans)]
    predicted = planner.predict_tasks(queries.subset(unnamed)) if unnamed else None
    of_query = {} if predicted is None else dict(zip(unnamed, predicted.tolist(), strict=True))
    return [
        [of_query.get(row)] * max(len(plans), 1)
        if plans.tasks is None or not len(plans)
        else plans.tasks.tolist()
        for row, plans in enumerate(found)
    ]


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
