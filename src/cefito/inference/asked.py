"""A question about one query, checked: names are ids, and the query holds all that is known."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.inference.query import check_width
from cefito.inference.question import Question, planning
from cefito.inference.sets import LARGEST_SET, check_coverage
from cefito.planners.checks import (
    check_elapsed,
    check_min_probability,
    check_partial,
    check_queries,
    check_task_given,
)
from cefito.planners.queries import Queries
from cefito.runs.matching import DatasetName
from cefito.runs.run import Run
from cefito.search.constraints import Constraints


@dataclass(frozen=True)
class Asked:
    """A question about one query, ready to be searched."""

    run: Run  # with the steps of the question
    question: Question
    query: Queries  # one, with its task, the steps done and the time, if they are known
    constraints: Constraints
    truth: NDArray[np.int64] | None = None  # annotated actions [T]
    dataset: DatasetName | None = None  # of the query, if it is not the run's

    @classmethod
    def of(
        cls,
        question: Question,
        run: Run,
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
