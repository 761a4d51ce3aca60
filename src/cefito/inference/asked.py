"""A question about one query, checked: names are ids, and the query holds all that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Taxonomy
from cefito.errors import ConfigError
from cefito.inference.query import check_width
from cefito.inference.question import Question, planning
from cefito.inference.sets import LARGEST_SET, check_coverage
from cefito.parts.matching import DatasetName
from cefito.parts.opened import OpenedRun
from cefito.planners.base import Planner, Queries
from cefito.planners.checks import (
    check_elapsed,
    check_min_probability,
    check_partial,
    check_queries,
    check_task_given,
)
from cefito.search.constraints import Constraints


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


UNLIKELY = 0.05
"""Largest share of queries that are warned although they ask for the truth.

It holds for calibrated probabilities: a choice is contradicted if all choices that are no likelier,
itself among them, have less than this probability together.
"""


def contradictions(
    planner: Planner,
    query: Queries,
    constraints: Constraints,
    taxonomy: Taxonomy,
    *,
    task: int | None,
) -> list[str]:
    """Return a sentence for each part of a query that its observations contradict.

    Constraints beyond those on single steps and pairs of steps are judged by the task that they
    lead to.

    Args:
        planner: The planner; without probabilities it contradicts nothing.
        query: One query.
        constraints: Constraints on its plans.
        taxonomy: Names of the tasks and actions.
        task: The task of its best plan.
    """
    sentences: list[str] = []
    if query.tasks is not None and query.done is not None:
        task_given = taxonomy.tasks[query.tasks[0]]
        foreign = sorted(set(query.done[0].tolist()) - {-1, *task_given.actions})
        names = taxonomy.names(foreign)
        sentences += [
            f"'{name}' was done but is not among the steps of '{task_given.name}'" for name in names
        ]
    if replace(query, tasks=None).empty.any():  # nothing that could contradict
        return sentences
    tasks, steps = planner.marginals(query)
    if tasks is not None and task is not None and _is_unlikely(tasks[0], task):
        likely, other = (
            f"'{taxonomy.tasks[number].name}' ({_percent(tasks[0, number])})"
            for number in (int(tasks[0].argmax()), task)
        )
        led = "with these constraints the best plan is of" if query.tasks is None else "given is"
        sentences.append(f"the observations point to the task {likely}; {led} {other}")
    if steps is not None and constraints:
        names = [action.name for action in taxonomy.actions]
        sentences += _of_steps(steps[0], constraints, names)
    return list(dict.fromkeys(sentences))  # actions of one name give one sentence


def _of_steps(
    steps: NDArray[np.float64],  # probability of each action at each step [T, K]
    constraints: Constraints,
    names: list[str],
) -> Iterator[str]:
    def seen(step: int, actions: list[int]) -> str:
        """Describe the probability of actions at a step, counted from 0."""
        either = dict.fromkeys(f"'{names[action]}'" for action in actions)
        share = _percent(steps[step, actions].sum())
        return f"{' or '.join(either)} at step {step + 1} ({share})"

    for number, action in constraints.pinned:
        step = number - 1
        if _is_unlikely(steps[step] / steps[step].sum(), action):  # if a plan has the step
            likely = seen(step, [int(steps[step].argmax())])
            likelihood = _percent(steps[step, action])
            yield (
                f"the observations point to {likely}; "
                f"'{names[action]}' is pinned there ({likelihood})"
            )
    for action in constraints.required:
        if _is_unlikely(steps.sum(axis=0), action):  # p(it occurs) ≤ Σ_t p(a_t = action)
            most = _percent(steps[:, action].sum())
            yield (
                f"the observations point to other actions than '{names[action]}' (at most {most}), "
                "which is required"
            )
    if constraints.forbidden:
        forbidden = list(dict.fromkeys(constraints.forbidden))
        # p(no step has one of them) ≤ 1 − max_t Σ_forbidden p(a_t = action)
        step = int(steps[:, forbidden].sum(axis=1).argmax())
        forbidden.sort(key=lambda action: -steps[step, action])
        together = steps[step, forbidden].cumsum()
        if together[-1] > 1 - UNLIKELY:
            enough = forbidden[: 1 + int((together > 1 - UNLIKELY).argmax())]
            yield f"the observations point to {seen(step, enough)}, which is forbidden"
    excluded = [
        (last, first, f"'{names[first]}' must come first") for first, last in constraints.before
    ]
    if constraints.no_repeats:
        often = ((steps > 1 - UNLIKELY).sum(axis=0) > 1).nonzero()[0].tolist()
        excluded += [(action, action, "no action may occur twice") for action in often]
    for earlier, later, rule in excluded:
        for step, after in combinations(range(len(steps)), 2):
            # p(a_s = earlier and a_t = later) ≥ p(a_s = earlier) + p(a_t = later) − 1
            if steps[step, earlier] + steps[after, later] - 1 > 1 - UNLIKELY:
                both = f"{seen(step, [earlier])} and {seen(after, [later])}"
                yield f"the observations point to {both}; {rule}"


def _is_unlikely(probabilities: NDArray[np.float64], choice: int) -> bool:
    """Whether a choice is among the least likely, which have little probability together."""
    return bool(probabilities[probabilities <= probabilities[choice]].sum() < UNLIKELY)


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %" if probability >= 0.001 else "below 0.1 %"
