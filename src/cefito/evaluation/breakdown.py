"""Every registered metric on the windows of each task, and its interval over videos."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.evaluation.metrics import TOP_K, MetricSums, metric_name
from cefito.evaluation.records import TaskScores, VideoIntervals
from cefito.evaluation.statistics import DRAWS, LEVEL, video_interval
from cefito.search.problem import Plans

__all__ = ["task_scores", "video_intervals"]


def task_scores(
    plans: Sequence[Plans],
    windows: Windows,
    *,
    tasks: NDArray[np.int64] | None = None,
    top_k: int = TOP_K,
) -> list[TaskScores]:
    """Metrics of each task that has windows, by ascending ids.

    Args:
        plans: The plans of each window.
        windows: Windows with their true sequences and tasks.
        tasks: Tasks of the plans [N]; None if the planner has no notion of tasks.
        top_k: The k of the top-k success rate.
    """
    return [
        TaskScores(
            task=task,
            name=windows.taxonomy.tasks[task].name,
            windows=len(rows),
            videos=len(np.unique(windows.video[rows])),
            metrics=_sums(plans, windows, tasks, top_k, rows).percents(),
        )
        for task, rows in _groups(windows.tasks)
    ]


def video_intervals(
    plans: Sequence[Plans],
    windows: Windows,
    *,
    tasks: NDArray[np.int64] | None = None,
    top_k: int = TOP_K,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> VideoIntervals | None:
    """Confidence intervals of every metric; None for a single video, which cannot be resampled.

    A percentile bootstrap over whole videos. Other arguments as in `task_scores`.
    """
    parts = [_sums(plans, windows, tasks, top_k, rows) for _, rows in _groups(windows.video)]
    if len(parts) < 2:
        return None
    low: dict[str, float | list[float]] = {}
    high: dict[str, float | list[float]] = {}
    for name in parts[0].sums:
        sums = np.array([part.sums[name] for part in parts])  # [V] or [V, T]
        counts = np.array([part.counts[name] for part in parts])  # [V]
        ends = [
            video_interval(100 * column, counts, level=level, draws=draws, seed=seed)
            for column in sums.reshape(len(parts), -1).T
        ]
        lows, highs = ([end[side] for end in ends] for side in (0, 1))
        shown = metric_name(name, top_k)
        low[shown], high[shown] = (lows, highs) if sums.ndim > 1 else (lows[0], highs[0])
    return VideoIntervals(level=level, videos=len(parts), draws=draws, low=low, high=high)


def _groups(numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each distinct number, ascending, with its rows."""
    order = np.argsort(numbers, kind="stable")
    values, firsts = np.unique(numbers[order], return_index=True)
    return list(zip(values.tolist(), np.split(order, firsts[1:]), strict=True))


def _sums(
    plans: Sequence[Plans],
    windows: Windows,
    tasks: NDArray[np.int64] | None,
    top_k: int,
    rows: NDArray[np.int64],
) -> MetricSums:
    sums = MetricSums(top_k=top_k)
    sums.add(
        [plans[row].actions for row in rows],
        windows.actions[rows],
        tasks=None if tasks is None else tasks[rows],
        actual_tasks=windows.tasks[rows],
    )
    return sums
