"""Conformal scores of windows, and their quantiles with each video as one observation.

Split conformal prediction (Vovk et al. 2005; Angelopoulos and Bates, arXiv 2107.07511) for
hierarchical data. Windows of a video are not exchangeable, videos are: scores are pooled with
weight 1 / n_v in a video of n_v windows (CDF pooling of Dunn, Wasserman and Ramdas, arXiv
1809.07441), and the new video counts as one more whose score is infinite (hierarchical conformal
prediction of Lee, Barber and Willett, arXiv 2306.06342). A set at level 1 − α then holds the truth
of a random window of a new video with probability at least 1 − α.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.data.windows import Windows
from cefito.inference.sets import LARGEST_SET, first_steps
from cefito.planners.base import Planner, Queries
from cefito.runs.coverage import Condition
from cefito.search.problem import Plans

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
    def of(cls, planner: Planner, windows: Windows, condition: Condition) -> WindowScores:
        """Score the windows of a condition; see `windows_for`."""
        planner, windows = planner_for(planner, condition), windows_for(windows, condition)
        queries = Queries.from_windows(windows, **dict(condition.given))
        next_step, next_two = _step_scores(planner, queries, windows.actions)
        return cls(
            videos=windows.video,
            plans=_plan_scores(planner, queries, windows.actions),
            next_step=next_step,
            next_two=next_two,
        )

    @classmethod
    def concatenate(cls, several: Sequence[WindowScores]) -> WindowScores:
        """Return the scores of windows of several folds; None in one of them means no windows."""
        columns: Any = zip(*(vars(one).values() for one in several), strict=True)
        known = ([part for part in column if part is not None] for column in columns)
        joined: Any = (np.concatenate(parts) if parts else None for parts in known)
        return cls(*joined)


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


def sampled(windows: Windows, most: int, seed: int = 0) -> Windows:
    """Return at most so many windows of each video, drawn at random, in their order.

    The guarantee is for a random window of a video, so that it stays.
    """
    drawn = np.random.default_rng(seed).permutation(len(windows))
    ranked = drawn[np.argsort(windows.video[drawn], kind="stable")]
    _, first, counts = np.unique(windows.video[ranked], return_index=True, return_counts=True)
    place = np.arange(len(windows)) - np.repeat(first, counts)  # in the windows of its video
    return windows.subset(np.sort(ranked[place < most]))


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
    planner: Planner, queries: Queries, actions: NDArray[np.int64]
) -> tuple[Reals | None, Reals | None]:
    """Return the scores of first steps, and of first pairs, of true plans [N, T]; None if unknown.

    There are no pairs if all plans have one step.
    """
    none = planner.vocabulary.actions or 0  # in the place of the second action if there is none
    second = np.where(actions[:, 1:2] < 0, none, actions[:, 1:2])
    one: list[Reals] = []
    two: list[Reals] = []
    for number, block in enumerate(queries.blocks(_TOGETHER)):
        rows = slice(number * _TOGETHER, (number + 1) * _TOGETHER)
        steps, pairs = first_steps(planner, block)
        if steps is not None:
            one.append(_scores(steps, actions[rows, 0]))
        if pairs is not None and second.size:
            places = actions[rows, 0] * (none + 1) + second[rows, 0]
            two.append(_scores(pairs.reshape(len(block), -1), places))
    return np.concatenate(one) if one else None, np.concatenate(two) if two else None


def _scores(probabilities: NDArray[np.floating[Any]], truth: NDArray[np.int64]) -> Reals:
    """Return the scores of true places [N] among probabilities [N, …]."""
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities[np.arange(len(truth)), truth])
    return np.where(probabilities.argmax(axis=1) == truth, 0.0, -logs)
