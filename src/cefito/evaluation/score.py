"""Scores of planners and of plans on windows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.evaluation.metrics import TOP_K, MetricSums, Orders, unpadded
from cefito.evaluation.records import (
    Calibration,
    Evaluation,
    PartScores,
    Replies,
    TaskScores,
    VideoIntervals,
    WindowPlans,
)
from cefito.evaluation.statistics import (
    DRAWS,
    LEVEL,
    best_probabilities,
    calibration,
    searched_mass,
    video_interval,
)
from cefito.inference.answer import planned_sequences
from cefito.planners.base import Planner, Queries
from cefito.planners.base_planner import check_elapsed, check_plans
from cefito.planners.given import Given
from cefito.progress import Progress, silent
from cefito.search.problem import Plans


@dataclass(frozen=True, eq=False)
class ScoredWindows:
    """Windows, their plans, and the scores of these."""

    plans: Sequence[Plans]  # of each window
    windows: Windows  # with their true sequences and tasks
    tasks: NDArray[np.int64] | None = None  # of the plans [N]; None if the planner knows none
    # that training keeps (`training_orders`); without them no order-tolerant success rate
    orders: Orders | None = None

    @cached_property
    def _lengths_given(self) -> bool:
        return all(
            actions.shape[1] == self.windows.horizon and (actions >= 0).all()
            for actions in (self.windows.actions, *(plan.actions for plan in self.plans))
        )

    def sums(self, rows: NDArray[np.int64]) -> MetricSums:
        """Sum the metrics of the windows of some rows."""
        sums = MetricSums(orders=self.orders, lengths_given=self._lengths_given)
        sums.add(
            [self.plans[row].actions for row in rows],
            self.windows.actions[rows],
            tasks=None if self.tasks is None else self.tasks[rows],
            actual_tasks=self.windows.tasks[rows],
        )
        return sums

    def sums_by(
        self, units: NDArray[np.int64]
    ) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return sums and divisors of every metric by unit, as the video of each window [V, …]."""
        parts = [self.sums(rows) for _, rows in _groups(units)]
        return {
            name: (
                np.array([part.sums[name] for part in parts]),
                np.array([part.counts[name] for part in parts]),
            )
            for name in parts[0].sums
        }

    def per_task(self) -> list[TaskScores]:
        """Metrics of each task that has windows, by ascending ids."""
        return [
            TaskScores(
                task=task,
                name=self.windows.taxonomy.tasks[task].name,
                windows=len(rows),
                videos=len(np.unique(self.windows.video[rows])),
                metrics=self.sums(rows).percents(),
            )
            for task, rows in _groups(self.windows.tasks)
        ]

    def intervals(self) -> VideoIntervals | None:
        """Confidence intervals of every metric; None for a single video, which is not resampled.

        A percentile bootstrap over whole videos, or over several groups.
        """
        windows = self.windows
        units = len(np.unique(windows.units))
        if units < 2:
            return None
        low: dict[str, float | list[float]] = {}
        high: dict[str, float | list[float]] = {}
        for name, (sums, counts) in self.sums_by(windows.units).items():
            columns = zip(*map(np.atleast_2d, (sums.T, counts.T)), strict=True)
            ends = [video_interval(100 * total, count) for total, count in columns if count.any()]
            lows, highs = ([end[side] for end in ends] for side in (0, 1))
            low[name], high[name] = (lows, highs) if sums.ndim > 1 else (lows[0], highs[0])
        videos = len(np.unique(windows.video))
        groups = {} if windows.units is windows.video else {"groups": units}
        return VideoIntervals(level=LEVEL, videos=videos, **groups, draws=DRAWS, low=low, high=high)

    def window_plans(self, dataset: PreparedDataset) -> list[WindowPlans]:
        """Combine the plans with names and true sequences; windows were cut from the data set."""
        windows, taxonomy, rows = self.windows, self.windows.taxonomy, []
        for row, plan in enumerate(self.plans):
            video, first = dataset.videos[windows.video[row]], int(windows.start[row])
            truth, task = unpadded(windows.actions[row]), int(windows.tasks[row])
            predicted = None if self.tasks is None else taxonomy.tasks[self.tasks[row]]
            number = None if predicted is None else predicted.id
            of_plans = [number] * len(plan)
            if plan.tasks is not None:
                of_plans = plan.tasks.tolist()
            right = [np.array_equal(actions, truth) for actions in plan.sequences]
            rows.append(
                WindowPlans(
                    video=video.video_id,
                    from_step=first + 1,
                    start=video.steps[first].start,
                    end=video.steps[first + len(truth) - 1].end,
                    true_task=task,
                    true_task_name=taxonomy.tasks[task].name,
                    predicted_task=number,
                    predicted_task_name=None if predicted is None else predicted.name,
                    true_actions=truth.tolist(),
                    true_names=taxonomy.names(truth),
                    plans=planned_sequences(plan, of_plans, taxonomy),
                    rank=right.index(True) + 1 if any(right) else None,
                    success=any(right[:1]),
                    exact=plan.exact,
                )
            )
        return rows

    def evaluation(
        self, planner: str, *, seconds: float, sampled_from: int | None, given: Given
    ) -> Evaluation:
        """Score the plans.

        Args:
            planner: Name of the planner.
            seconds: Wall time that the plans took.
            sampled_from: Number of windows that these are a sample of; None if they are all.
            given: What the planner was given.
        """
        plans, windows = self.plans, self.windows
        count, shortest = len(windows), int(windows.lengths.min())
        sums = self.sums(np.arange(count))
        shared = None
        if windows.taxonomy.to_shared is not None:
            shared = MetricSums(lengths_given=sums.lengths_given)
            to_shared = np.array([*windows.taxonomy.to_shared, -1])  # padding, -1, stays
            shared.add([to_shared[plan.actions] for plan in plans], to_shared[windows.actions])
        probabilities = best_probabilities(plans)
        return Evaluation(
            planner=planner,
            dataset=windows.dataset,
            split=windows.split,
            horizon=windows.horizon,
            shortest=shortest if shortest < windows.horizon else None,
            windows=count,
            sampled_from=count if sampled_from is None else sampled_from,
            **dict(given),
            metrics=sums.percents(),
            shared_metrics=None if shared is None else shared.percents(),
            without_plan=sums.without_plan,
            exact=all(plan.exact for plan in plans),
            seconds_per_query=seconds / count,
            token_forwards_per_query=sum(plan.evaluated.token_forwards for plan in plans) / count,
            leaves_per_query=sum(plan.evaluated.leaves for plan in plans) / count,
            calibration=(
                None
                if probabilities is None
                else calibration(
                    probabilities,
                    successes(plans, windows),
                    videos=windows.units,
                    mass=searched_mass(plans),
                )
            ),
            task_calibration=None if given.task else _task_calibration(plans, windows),
            replies=Replies.of(plans),
            **self._apart(),
        )

    def _apart(self) -> dict[str, PartScores]:
        """Scores of the windows without and with an error, if there are some of both."""
        wrong = self.windows.wrong
        if wrong is None or len(np.unique(wrong)) < 2:
            return {}
        return {
            name: PartScores(
                windows=int(mask.sum()), metrics=self.sums(np.flatnonzero(mask)).percents()
            )
            for name, mask in (("clean", ~wrong), ("wrong", wrong))
        }


def _groups(numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each distinct number, ascending, with its rows."""
    order = np.argsort(numbers, kind="stable")
    values, firsts = np.unique(numbers[order], return_index=True)
    return list(zip(values.tolist(), np.split(order, firsts[1:]), strict=True))


def evaluate_planner(
    planner: Planner,
    windows: Windows,
    *,
    orders: Orders | None = None,
    sampled_from: int | None = None,
    progress: Progress = silent,
    **flags: bool,
) -> tuple[Evaluation, list[Plans]]:
    """Plan windows and score the plans; return both.

    Args:
        planner: A fitted planner.
        windows: Windows with their true sequences.
        orders: As in `ScoredWindows`.
        sampled_from: Number of windows that these are a sample of.
        progress: Shows progress.
        flags: What the planner is given, by fields of `Given`.
    """
    told = Given.of(**flags)
    if not len(windows) or windows.horizon != planner.horizon:
        raise ConfigError(
            f"{len(windows)} windows of {windows.horizon} actions: {planner.name} is scored on one "
            f"or more of {planner.horizon}. Cut windows of this horizon."
        )
    if told.with_elapsed:
        check_elapsed(planner)
    queries = Queries.from_windows(windows, **flags)
    started = time.perf_counter()
    plans = planner.plan(queries, TOP_K, progress=progress)
    seconds = time.perf_counter() - started
    check_plans(planner, plans, len(windows.taxonomy.actions))
    scored = ScoredWindows(plans, windows, planned_tasks(planner, queries, plans), orders)
    evaluation = scored.evaluation(
        planner.name, seconds=seconds, sampled_from=sampled_from, given=told
    )
    return evaluation, plans


def _task_calibration(plans: Sequence[Plans], windows: Windows) -> Calibration | None:
    """Calibration of the probability of each best plan's task; None if one is not known."""
    pairs = [
        (plan.task_probabilities[0], plan.tasks[0] == actual)
        for plan, actual in zip(plans, windows.tasks, strict=True)
        if plan.task_probabilities is not None and plan.tasks is not None and len(plan)
    ]
    if len(pairs) < len(plans):
        return None
    return calibration(*zip(*pairs, strict=True), videos=windows.units)


def successes(plans: Sequence[Plans], windows: Windows) -> NDArray[np.bool_]:
    """Whether the whole sequence of each window's best plan is right [N]."""
    return np.array(
        [
            len(plan) > 0 and np.array_equal(plan.sequences[0], unpadded(actual))
            for plan, actual in zip(plans, windows.actions, strict=True)
        ]
    )


def planned_tasks(
    planner: Planner, queries: Queries, plans: Sequence[Plans]
) -> NDArray[np.int64] | None:
    """The planned, else predicted, task of each query [N]; None if one is unknown.

    Args:
        planner: Fitted planner.
        queries: N queries.
        plans: Their plans.
    """
    named = [plan.tasks[0] if plan.tasks is not None and len(plan) else -1 for plan in plans]
    tasks = np.array(named, dtype=np.int64)
    unnamed = np.flatnonzero(tasks < 0)
    if len(unnamed):
        predicted = planner.predict_tasks(queries.subset(unnamed))
        if predicted is None:
            return None
        tasks[unnamed] = predicted
    return tasks
