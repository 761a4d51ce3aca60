"""A question about one query, checked, and its answer: plans with names and energies, for JSON."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.vocabulary import Taxonomy, in_words
from cefito.errors import ConfigError
from cefito.inference.contradictions import contradictions
from cefito.inference.query import check_width
from cefito.inference.question import Facts, Question, planning
from cefito.inference.sets import LARGEST_SET, PlanSets, check_coverage, plan_sets
from cefito.markup import counted, percent
from cefito.parts.matching import DatasetName
from cefito.parts.opened import OpenedRun
from cefito.planners.base import Planner, Queries
from cefito.planners.base_planner import (
    check_elapsed,
    check_min_probability,
    check_partial,
    check_plans,
    check_queries,
    check_task_given,
)
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.settings import Record


@dataclass(frozen=True)
class Asked:
    """A question about one query, ready to be searched."""

    run: OpenedRun  # with the steps of the question
    question: Question
    query: Queries  # one, with its task, the steps done and the time, if they are known
    constraints: Constraints
    truth: NDArray[np.int64] | None = None  # annotated actions [T]
    dataset: DatasetName | None = None  # of the query, if it is not the run's

    @classmethod
    def of(
        cls,
        question: Question,
        run: OpenedRun,
        query: Queries,
        *,
        any_task: bool = False,
        truth: NDArray[np.int64] | None = None,
        dataset: DatasetName | None = None,
    ) -> Self:
        """Check a question about one query.

        Args:
            question: What is asked.
            run: A run of any method.
            query: One query, with what was observed.
            any_task: Ignore the task if the planner makes no use of it.
            truth: Annotated actions [T], repeated in the answer.
            dataset: Data set of the query, if it is not the run's; repeated in the answer.

        Raises:
            ConfigError: A fact that is unknown to the run, or that the planner cannot follow.
            RunError: Observations of another dimension, or a run that is not calibrated.
        """
        run = planning(run, question.steps)
        planner = run.planner
        if question.done is not None:
            check_partial(planner, "done")
        ids: Any = question.resolved(run)
        check_width(run, query.initial.shape[-1], "observations have")
        if ids.task is not None and (planner.abilities.true_task or not any_task):
            check_task_given(planner)
            query = query.with_task(ids.task)
        if ids.done is not None:
            query = query.with_done(ids.done)
        if query.done is None and query.empty.any():
            raise ConfigError(
                "nothing is known of the query. Give an observation, the task, or steps done "
                "before."
            )
        if ids.elapsed is not None:
            check_elapsed(planner)
            if not query.known.all():
                raise ConfigError(
                    f"elapsed {ids.elapsed:g}: expected two observations, between which these "
                    "seconds pass.",
                    setting="elapsed",
                )
            query = query.with_elapsed(ids.elapsed)
        constraints = Constraints(**dict(ids.constraints))
        if question.min_probability is not None:
            check_min_probability(planner, question.min_probability)
        if question.coverage is not None:
            check_coverage(run, query, question.coverage, constraints)
        check_queries(planner, query, question.top_k, constraints)
        return cls(run, question, query, constraints, truth, dataset)

    @property
    def searched(self) -> int:
        """Number of plans to search: those of the answer, and enough for sets if asked."""
        top_k = self.question.top_k
        return top_k if self.question.coverage is None else max(top_k, LARGEST_SET + 1)

    @property
    def kind(self) -> Hashable:
        """Equal for questions to one run that can be planned together."""
        return (
            self.run.shortest,
            self.run.horizon,
            self.searched,
            self.constraints,
            self.query.extras,
        )


class PlannedSequence(Record):
    """One plan."""

    actions: list[int]
    names: list[str]
    energy: float
    score: float = Field(description="Criterion that plans are ordered by; lower is better.")
    probability: float | None = Field(
        description="Of plan and task, given the observations; null if the method has none."
    )
    task: str | None = Field(description="The task that it was found for.")
    task_id: int | None

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of its actions."""
        return tuple(self.names)


class SearchAnswer(Record):
    """The search."""

    method: str | None
    tasks: int = Field(description="Number of searched tasks.")
    interrupted: bool = Field(description="Whether it was stopped.")


class KnownAnswer(Record):
    """What is known of the query."""

    initial: bool = Field(description="The observation before the first step.")
    goal: bool = Field(description="The observation after the last step.")
    done: list[int] | None = Field(
        description="Actions done before, oldest first; null if unknown."
    )
    names: list[str] | None = Field(description="Their names.")
    elapsed: float | None = Field(description="Seconds between both observations.")


class Truth(Record):
    """The annotated actions, with their names."""

    actions: list[int]
    names: list[str]


class Answer(Record):
    """The plans of one query."""

    task: str | None = Field(
        description="Of the best plan; null if the planner has no notion of tasks."
    )
    task_id: int | None
    task_source: Literal["predicted", "given"] | None
    task_probability: float | None = Field(
        description="Of all its sequences; null if it was given or is unknown."
    )
    plans: list[PlannedSequence] = Field(description="Best first.")
    evaluated: SearchCost
    exact: bool = Field(description="Whether no other allowed sequence is better.")
    margin: float | None = Field(
        None,
        description="With screening: sequences whose score in bfloat16 is further than this from "
        "the last plan's were not evaluated in float32. It is measured, and no bound.",
    )
    sure: bool | None = Field(
        description="Whether the best plan reaches `min_probability`; null without it."
    )
    searched_mass: float | None = Field(description="Total probability of the sequences compared.")
    search: SearchAnswer
    weights: dict[str, float] | None = Field(description="Weights of the objective's terms.")
    warnings: list[str] = Field(
        description="A sentence for each constraint or given task that the observations "
        "contradict, and if the first answer of a language model was invalid."
    )
    lengths: dict[int, float] | None = Field(
        None,
        description="Probability of each number of steps; without a goal, of steps to the end, at "
        "most the largest. Null if all plans of the run have one number of steps.",
    )
    known: KnownAnswer | None = Field(None, description="Null for both observations alone.")
    sets: PlanSets | None = Field(None, description="With `coverage`.")
    truth: Truth | None = Field(None, description="Annotated actions of a query by video.")
    dataset: DatasetName | None = Field(
        None, description="Data set of the query, if it is not the run's."
    )

    @property
    def by_energy(self) -> bool:
        """Whether the energy counts in the score of plans."""
        return bool((self.weights or {}).get("energy"))

    @property
    def lengths_in_words(self) -> str:
        """Probabilities of the numbers of steps, likeliest first; empty if there is no choice."""
        if self.lengths is None or len(self.lengths) == 1:
            return ""
        name = "steps"
        if self.known is not None and not self.known.goal:
            name = f"steps to the end, at most {max(self.lengths)}"
        ranked = sorted(self.lengths.items(), key=lambda entry: -entry[1])
        shares = ", ".join(f"{length} ({100 * share:.0f} %)" for length, share in ranked)
        return f"{name}: {shares}"

    @property
    def best(self) -> tuple[str, ...]:
        """Names of the actions of the best plan; empty without plans."""
        return self.plans[0].steps if self.plans else ()

    def __repr__(self) -> str:
        first = f"best {_named(self.plans[0]).strip()}, " if self.plans else ""
        task = "" if self.task is None else f"task {self.task!r}, "
        proven = "exact" if self.exact else "not exact"
        return f"Answer({counted(len(self.plans), 'plan')}, {first}{task}{proven})"

    def __str__(self) -> str:
        likely = "" if self.task_probability is None else f", {percent(self.task_probability)}"
        lines = [] if self.task is None else [f"task: {self.task}{likely}"]
        lines += [self.lengths_in_words] if self.lengths_in_words else []
        lines += [_named(plan) for plan in self.plans] or ["no plan"]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON; without fields that are None and seldom given."""
        seldom = ("margin", "lengths", "known", "sets", "truth", "dataset")
        absent = {name for name in seldom if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=absent)


def answer(
    run: OpenedRun,
    query: Queries,
    *,
    truth: NDArray[np.int64] | None = None,
    dataset: DatasetName | None = None,
    stop: Callable[[], bool] | None = None,
    **facts: Unpack[Facts],
) -> Answer:
    """Plan one query: `answers` to `Asked.of`, with a question of these fields.

    Args:
        run: The run that plans.
        query: One query.
        truth: Ids of the annotated actions [T], if they are known.
        dataset: Data set of the query, if not the run's.
        stop: As of `answers`.
        facts: Fields of the question.
    """
    asked = Asked.of(Question.of(facts), run, query, truth=truth, dataset=dataset)
    return answers([asked], stop=stop)[0]


def answers(
    several: Sequence[Asked], *, stop: Callable[[], bool] | None = None, progress: Progress = silent
) -> list[Answer]:
    """Answer questions of one run and one `Asked.kind`, which are planned together.

    Args:
        several: The questions.
        stop: Is called now and then; if it returns true, the answers hold the best plans so far.
        progress: Shows how many queries are planned.
    """
    first, planner, taxonomy = several[0], several[0].run.planner, several[0].run.taxonomy
    try:
        listed = planner.plan(
            Queries.concatenate([asked.query for asked in several]),
            first.searched,
            constraints=first.constraints,
            stop=stop,
            progress=progress,
        )
    except ConfigError as problem:  # a planner knows ids only
        raise ConfigError(in_words(str(problem), taxonomy), setting=problem.setting) from problem
    check_plans(planner, listed, len(taxonomy.actions))
    interrupted = stop is not None and stop()
    return [
        to_answer(asked, plans, interrupted=interrupted and not plans.exact)
        for asked, plans in zip(several, listed, strict=True)
    ]


def to_answer(asked: Asked, plans: Plans, *, interrupted: bool = False) -> Answer:
    """Return the answer to a question with these plans.

    Args:
        asked: The question, with its query.
        plans: Plans of the query, best first.
        interrupted: Whether the search was stopped before its end.
    """
    run, query, question = asked.run, asked.query, asked.question
    sets = None if question.coverage is None else plan_sets(run, query, plans, question.coverage)
    plans = plans.best(question.top_k)
    taxonomy, planner, truth = run.taxonomy, run.planner, asked.truth
    description = planner.describe()
    tasks = _tasks(planner, query, plans)
    sure = None
    if question.min_probability is not None:
        sure = len(plans) > 0 and (_first(plans.probabilities) or 0.0) >= question.min_probability
    task_given = query.tasks is not None
    warnings = [] if plans.reply is None else plans.reply.warnings
    if len(plans) and (asked.constraints or task_given):
        warnings += contradictions(planner, query, asked.constraints, taxonomy, task=tasks[0])
    source: Literal["predicted", "given"] = "given" if task_given else "predicted"
    return Answer(
        task=_name_of(tasks[0], taxonomy),
        task_id=tasks[0],
        task_source=None if tasks[0] is None else source,
        task_probability=None if task_given else _first(plans.task_probabilities),
        plans=planned_sequences(plans, tasks[: len(plans)], taxonomy),
        evaluated=plans.evaluated,
        exact=plans.exact,
        margin=plans.margin,
        sure=sure,
        searched_mass=plans.searched_mass,
        search=SearchAnswer(
            method=description.search.method if description.search else None,
            tasks=plans.searched,
            interrupted=interrupted,
        ),
        weights=description.weights,
        warnings=warnings,
        lengths=plans.length_probabilities,
        known=_known(query, taxonomy),
        sets=sets,
        truth=None if truth is None else Truth(actions=truth.tolist(), names=taxonomy.names(truth)),
        dataset=asked.dataset,
    )


def planned_sequences(
    plans: Plans, tasks: Sequence[int | None], taxonomy: Taxonomy
) -> list[PlannedSequence]:
    """Return the plans of one query with names, best first.

    Args:
        plans: The plans [k, T], padded with -1.
        tasks: Id of the task of each plan; None if it has none.
        taxonomy: Names of tasks and actions.
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
            task=_name_of(task, taxonomy),
            task_id=task,
        )
        for actions, energy, score, probability, task in zip(
            plans.sequences, plans.energies, plans.scores, probabilities, tasks, strict=True
        )
    ]


def _known(query: Queries, taxonomy: Taxonomy) -> KnownAnswer | None:
    """Return what is known of one query; None for both observations alone."""
    if query.whole and query.elapsed is None:
        return None
    (initial, goal), done = query.known[0].tolist(), None
    if query.done is not None:
        done = [action for action in query.done[0].tolist() if action >= 0]
    names = None if done is None else taxonomy.names(done)
    elapsed = None if query.elapsed is None else float(query.elapsed[0])
    return KnownAnswer(initial=initial, goal=goal, done=done, names=names, elapsed=elapsed)


def _tasks(planner: Planner, query: Queries, plans: Plans) -> list[int] | list[None]:
    """Return the task of each plan; without plans, the task of the query alone."""
    if plans.tasks is not None and len(plans):
        return [int(task) for task in plans.tasks]
    count = max(len(plans), 1)
    predicted = planner.predict_tasks(query)
    return [None] * count if predicted is None else [int(predicted[0])] * count


def _name_of(task: int | None, taxonomy: Taxonomy) -> str | None:
    return None if task is None else taxonomy.tasks[task].name


def _named(plan: PlannedSequence) -> str:
    """Return a plan in words, after its probability, or its score if it has none."""
    value = f"{plan.score:z.4f}" if plan.probability is None else percent(plan.probability)
    return f"{value:>7}  {' → '.join(plan.names)}"


def _first(values: NDArray[np.float64] | None) -> float | None:
    return None if values is None or not len(values) else float(values[0])
