"""Sets of plans, and of first steps, that hold the annotated one with a guaranteed probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError
from cefito.markup import counted
from cefito.parts.coverage import Condition, Thresholds
from cefito.parts.opened import OpenedRun
from cefito.planners.base import Planner, Queries
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans
from cefito.search.settings import changed_settings
from cefito.settings import Record

LARGEST_SET = 100
"""Sets of more plans are not listed, only called larger."""


class LikelySteps(Record):
    """A plan, or its first steps."""

    actions: list[int]
    names: list[str]
    probability: float
    ends: bool = Field(False, description="Whether the plan is known to end after them.")


class StepSet(Record):
    """A set of plans or of first steps."""

    size: int | None = Field(description="Null if there are more plans than are listed.")
    steps: list[LikelySteps] = Field(
        description="Likeliest first; none of a set that is too large to be listed."
    )


class PlanSets(Record):
    """Sets that hold the annotated plan, or its first steps, of a new video.

    With probability `coverage` over new videos and a random window of each.
    """

    coverage: float
    videos: int = Field(description="Number of videos that they were calibrated on.")
    folds: int = Field(description="0 if the run was not trained on these videos.")
    plans: StepSet
    next_step: StepSet | None = Field(
        None, description="Null if the method has no such probabilities."
    )
    next_two: StepSet | None = Field(
        None, description="First two steps, or the only one; null for plans of one step."
    )

    def in_words(self) -> str:
        """Return the sizes of the sets in a sentence."""
        size = self.plans.size
        plans = f"more than {LARGEST_SET} plans" if size is None else counted(size, "plan")
        words = f"the set for {100 * self.coverage:g} % has {plans}"
        alone = [
            f"{name} alone: {steps.size}"
            for name, steps in (("the next step", self.next_step), ("the next two", self.next_two))
            if steps is not None
        ]
        return "; ".join([words, *alone])


def check_coverage(
    run: OpenedRun, query: Queries, coverage: float, constraints: Constraints
) -> None:
    """Refuse a query whose sets are not calibrated, before any work.

    Args:
        run: A calibrated run.
        query: The query.
        coverage: Share of queries whose set shall hold the true plan, 0 to 1.
        constraints: Constraints on the plans, of which there may be none.

    Raises:
        ConfigError: A level or a query that the run was not calibrated for, or constraints.
        RunError: The run was not calibrated.
    """
    run.calibrated()  # refuse a run that is not, first
    if constraints:
        raise ConfigError(
            "the guarantee is for sets of all plans, without constraints. Leave out the "
            "constraints or the coverage.",
            setting="coverage",
        )
    search, trained = run.planner.describe().search, run.trained_search
    if search is not None and trained is not None and changed_settings(search, trained):
        raise ConfigError(
            f"{run.place}: its sets are calibrated for the search that it was trained with. "
            "Leave out other settings of the search.",
            setting="coverage",
        )
    _thresholds(run, query, coverage)


def plan_sets(run: OpenedRun, query: Queries, plans: Plans, coverage: float) -> PlanSets:
    """Return the sets for one query that `check_coverage` accepts.

    Args:
        run: A calibrated run.
        query: One query.
        plans: Its best plans, more than `LARGEST_SET` of them if there are.
        coverage: Probability with which the sets hold the annotated plan, such as 0.9.
    """
    thresholds, level = _thresholds(run, query, coverage)
    assert plans.probabilities is not None
    threshold = thresholds.plans[level]
    kept = set_places(plans.probabilities, threshold)
    next_step = next_two = None
    step, pairs = first_steps(run.planner, query)
    if thresholds.next_step is not None and step is not None:
        next_step = _step_set(step[0][:, None], thresholds.next_step[level], run.taxonomy)
    if thresholds.next_two is not None and pairs is not None:
        next_two = _step_set(pairs[0], thresholds.next_two[level], run.taxonomy)
    return PlanSets(
        coverage=coverage,
        videos=thresholds.videos,
        folds=run.calibrated().folds,
        plans=_listed(
            [plans.sequences[place] for place in kept], plans.probabilities[kept], run.taxonomy
        )
        if threshold is not None
        else StepSet(size=None, steps=[]),
        next_step=next_step,
        next_two=next_two,
    )


def first_steps(
    planner: Planner, queries: Queries
) -> tuple[NDArray[np.floating[Any]] | None, NDArray[np.floating[Any]] | None]:
    """Return the probabilities of first actions [N, K] and pairs [N, K, K + 1]; None if unknown."""
    pairs = planner.first_pairs(queries)
    if pairs is not None:
        return pairs.sum(axis=2), pairs
    steps = planner.marginals(queries).steps
    return None if steps is None else steps[:, 0], None


def _thresholds(run: OpenedRun, query: Queries, coverage: float) -> tuple[Thresholds, int]:
    """Return the thresholds for a query like this one, and the place of the level in them."""
    table, (initial, goal) = run.calibrated(), query.known[0].tolist()
    wanted = ""
    if not initial:
        wanted = "with the initial observation. Give it, or leave out the coverage."
    elif query.elapsed is not None:
        wanted = "without the time between observations. Leave out the time or the coverage."
    if wanted:
        raise ConfigError(f"sets are calibrated for queries {wanted}", setting="coverage")
    if run.shortest is not None and run.steps != table.steps:
        raise ConfigError(
            f"steps {run.steps}: sets are calibrated for one number of steps, or for all of "
            f"{table.steps} together. Ask for one of these.",
            setting="steps",
        )
    condition = Condition(
        steps=run.horizon if run.shortest is None else None,
        goal=goal,
        done=query.done is not None,
        task=query.tasks is not None,
    )
    return table.of(condition, coverage, place=run.place)


def set_places(
    probabilities: NDArray[np.floating[Any]], threshold: float | None
) -> NDArray[np.int64]:
    """Return the places of a set among probabilities [n], likeliest first.

    The likeliest, and all others with −log p up to the threshold; all if there is no threshold.
    """
    order = np.argsort(-probabilities, kind="stable")
    if threshold is None:
        return order
    inside = probabilities[order] >= np.exp(-threshold) * (1 - 1e-6)
    inside[:1] = True
    return np.asarray(order[inside], dtype=np.int64)


def _step_set(
    probabilities: NDArray[np.floating[Any]],  # of first steps [K, 1], or of pairs [K, K + 1]
    threshold: float | None,
    taxonomy: Taxonomy,
) -> StepSet:
    flat = probabilities.ravel()
    kept = set_places(flat, threshold)
    places = np.stack(np.unravel_index(kept, probabilities.shape), axis=1)  # [n, 2]
    if probabilities.shape[1] == 1:
        places = places[:, :1]
    ends = len(probabilities)  # place of the pairs that end after the first step
    return _listed([row[row < ends] for row in places], flat[kept], taxonomy, ends=places.shape[1])


def _listed(
    sequences: Sequence[NDArray[np.int64]],
    probabilities: NDArray[np.floating[Any]],
    taxonomy: Taxonomy,
    *,
    ends: int = 0,  # steps below which a plan ends
) -> StepSet:
    """Return the set of sequences, which are not listed if there are too many."""
    if len(sequences) > LARGEST_SET:
        return StepSet(size=len(sequences) if ends else None, steps=[])
    return StepSet(
        size=len(sequences),
        steps=[
            LikelySteps(
                actions=actions.tolist(),
                names=taxonomy.names(actions),
                probability=min(1.0, float(probability)),
                ends=len(actions) < ends,
            )
            for actions, probability in zip(sequences, probabilities, strict=True)
        ],
    )
