"""Conformal scores of windows, and their quantiles with each video as one observation.

Split conformal prediction (Vovk et al. 2005; Angelopoulos and Bates, arXiv 2107.07511) for
hierarchical data. Windows of a video are not exchangeable, videos are: scores are pooled with
weight 1 / n_v in a video of n_v windows (CDF pooling of Dunn, Wasserman and Ramdas, arXiv
1809.07441), and the new video counts as one more whose score is infinite (hierarchical conformal
prediction of Lee, Barber and Willett, arXiv 2306.06342). A set at level 1 − α then holds the truth
of a random window of a new video with probability at least 1 − α.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.data.windows import Windows
from cefito.inference.sets import LARGEST_SET
from cefito.planners.base import Planner, Queries
from cefito.runs.coverage import Condition
from cefito.search.problem import Plans

__all__ = ["WindowScores", "conditions", "planner_for", "quantiles", "windows_for"]

_TOGETHER = 32  # queries whose pairs of first steps are held at once

Reals = NDArray[np.float64]


def quantiles(scores: ArrayLike, videos: ArrayLike, levels: ArrayLike) -> Reals:
    """Return the conformal quantiles [L] of the scores [N] of windows of videos [N].

    The least s with Σ_v Σ_i 1[s_vi ≤ s] / (n_v (V + 1)) ≥ level, over the n_v windows of V videos;
    ∞ if there is none.
    """
    values = np.asarray(scores, dtype=np.float64)
    _, place, counts = np.unique(np.asarray(videos), return_inverse=True, return_counts=True)
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(1 / (counts[place[order]] * (len(counts) + 1)))
    found = np.searchsorted(mass, np.asarray(levels) - 1e-9)
    return np.append(values[order], np.inf)[found]


@dataclass(frozen=True)
class WindowScores:
    """Conformal scores of the truth of N windows, for sets of plans and of first steps.

    The score is −log p (least ambiguous sets of Sadinle, Lei and Wasserman, arXiv 1609.00451), but
    0 for the likeliest entry: a set holds at least that one.
    """

    videos: NDArray[np.int64]  # [N]
    plans: Reals  # [N]
    next_step: Reals | None  # [N]; None if the planner has no such sums
    next_two: Reals | None

    @classmethod
    def of(
        cls,
        planner: Planner,
        windows: Windows,
        condition: Condition,
    ) -> WindowScores:
        """Score the windows of a condition; see `windows_for`."""
        planner, windows = planner_for(planner, condition), windows_for(windows, condition)
        queries = Queries.from_windows(
            windows,
            oracle_task=condition.task,
            goal=condition.goal,
            done=condition.done,
        )
        first = windows.actions[:, 0]
        # the first two actions as one number; K in the place of the second if there is none
        ends, second = planner.vocabulary.actions or 0, windows.actions[:, 1:2]
        pair = (
            first * (ends + 1) + np.where(second < 0, ends, second)[:, 0] if second.size else None
        )
        return cls(
            videos=windows.video,
            plans=_plan_scores(planner, queries, windows.actions),
            next_step=_step_scores(
                lambda block: _first(planner.marginals(block).steps), queries, first
            ),
            next_two=None if pair is None else _step_scores(planner.first_pairs, queries, pair),
        )

    @classmethod
    def concatenate(cls, several: Sequence[WindowScores]) -> WindowScores:
        """Return the scores of windows of several folds."""
        columns: Any = zip(*(vars(one).values() for one in several), strict=True)
        return cls(*(None if part[0] is None else np.concatenate(part) for part in columns))


def conditions(planner: Planner) -> list[Condition]:
    """Return all conditions that a planner can be calibrated for."""
    several = planner.abilities.any_length
    lengths: list[int | None] = list(getattr(planner, "lengths", (planner.horizon,)))
    if len(lengths) > 1:
        lengths.append(None)
    return [
        Condition(steps=steps, goal=goal, done=done, task=task)
        for steps in lengths
        for goal in ((True, False) if several else (True,))
        for done in ((False, True) if several else (False,))
        for task in ((False, True) if planner.abilities.true_task else (False,))
    ]


def planner_for(planner: Planner, condition: Condition) -> Planner:
    """Return the planner of the number of steps of a condition."""
    untyped: Any = planner
    if condition.steps is None or not planner.abilities.any_length:
        return planner
    chosen: Planner = untyped.with_lengths(condition.steps, condition.steps)
    return chosen


def windows_for(windows: Windows, condition: Condition) -> Windows:
    """Return the windows of a condition.

    Without a goal and a number of steps, the plan reaches to the end of the video, or is as long as
    the longest.
    """
    if condition.steps is not None:
        return windows.of_length(condition.steps)
    if condition.goal:
        return windows
    assert windows.remaining is not None
    ends = np.minimum(windows.remaining, windows.horizon)
    return windows.subset(np.flatnonzero(windows.lengths == ends))


def _plan_scores(planner: Planner, queries: Queries, actions: NDArray[np.int64]) -> Reals:
    """Return the scores of true plans [N, T].

    If a planner gives probabilities only to the plans that it lists, others have a score of ∞.
    """
    logs = planner.log_probabilities(queries, actions) if len(queries) else np.zeros(0)
    listed = planner.plan(queries, LARGEST_SET if logs is None else 1)
    places = [_place(plans, truth) for plans, truth in zip(listed, actions, strict=True)]
    if logs is None:
        logs = np.full(len(queries), -np.inf)
        for row, (plans, place) in enumerate(zip(listed, places, strict=True)):
            if place is not None and plans.probabilities is not None:
                logs[row] = np.log(plans.probabilities[place])
    best = np.array([place == 0 for place in places], dtype=np.bool_)
    return np.where(best, 0.0, -logs)


def _place(plans: Plans, truth: NDArray[np.int64]) -> int | None:
    """Return the place of the true plan among those listed; None if it is not listed."""
    found = np.flatnonzero((plans.actions == truth[: plans.actions.shape[1]]).all(axis=1))
    return int(found[0]) if len(found) else None


def _step_scores(
    probabilities: Callable[[Queries], Reals | None],  # of all first steps, [B, …]
    queries: Queries,
    truth: NDArray[np.int64],  # place of the true ones [N]
) -> Reals | None:
    """Return the scores of true first steps [N]; None if they have no probabilities."""
    scores = []
    for number, block in enumerate(queries.blocks(_TOGETHER)):
        found = probabilities(block)
        if found is None:
            return None
        values = found.reshape(len(block), -1)
        own = truth[number * _TOGETHER :][: len(block)]
        with np.errstate(divide="ignore"):
            logs = np.log(values[np.arange(len(block)), own])
        scores.append(np.where(values.argmax(axis=1) == own, 0.0, -logs))
    return np.concatenate(scores) if scores else np.zeros(0)


def _first(steps: Reals | None) -> Reals | None:
    return None if steps is None else steps[:, 0]
