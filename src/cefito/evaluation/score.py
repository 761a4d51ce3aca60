"""Scoring a planner on windows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.evaluation.metrics import MetricSums
from cefito.planners.base import Planner, Queries
from cefito.search.problem import Plans

__all__ = ["Evaluation", "evaluate_planner"]


@dataclass(frozen=True)
class Evaluation:
    """How a planner did on some windows.

    Attributes:
        planner: Its name.
        dataset: Name of the data set; says "simulated" where it is.
        split: Split of the windows.
        horizon: T.
        windows: Number of windows.
        sampled_from: Number that they were sampled from; equal where all were taken.
        oracle_task: Whether the true task was given.
        metrics: Per cent, by name; `position_accuracy` is a list of T.
        shared_metrics: The same with actions taken in the taxonomy's shared vocabulary (CrossTask:
            105 ids for 133), in which equal actions of different tasks count as the same; None
            where it has none.
        without_plan: Windows without any plan, counted as wrong.
        exact: Whether every search was exact.
        seconds_per_query: Wall time of planning over windows.
        token_forwards_per_query: Mean number of tokens through the network.
        leaves_per_query: Mean number of sequences whose energy was computed.
    """

    planner: str
    dataset: str
    split: str
    horizon: int
    windows: int
    sampled_from: int
    oracle_task: bool
    metrics: dict[str, Any]
    shared_metrics: dict[str, Any] | None
    without_plan: int
    exact: bool
    seconds_per_query: float
    token_forwards_per_query: float
    leaves_per_query: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def evaluate_planner(
    planner: Planner,
    windows: Windows,
    *,
    oracle_task: bool = False,
    top_k: int = 5,
    sampled_from: int | None = None,
) -> tuple[Evaluation, list[Plans]]:
    """Plan windows and score the plans.

    Args:
        planner: A fitted planner.
        windows: Windows with their true sequences.
        oracle_task: Give the planner the true tasks.
        top_k: Plans asked for a window, and the k of the top-k success rate.
        sampled_from: Number of windows that these are a sample of.

    Returns:
        The scores, and the plans of each window.
    """
    queries = Queries.from_windows(windows, oracle_task=oracle_task)
    started = time.perf_counter()
    plans = planner.plan(queries, top_k)
    seconds = time.perf_counter() - started
    tasks = _tasks(planner.predict_tasks(queries), plans)
    sums = MetricSums(top_k=top_k)
    sums.add(
        [plan.actions for plan in plans], windows.actions, tasks=tasks, actual_tasks=windows.tasks
    )
    shared = None
    if windows.taxonomy.to_shared is not None:
        to_shared, shared = np.array(windows.taxonomy.to_shared), MetricSums(top_k=top_k)
        shared.add([to_shared[plan.actions] for plan in plans], to_shared[windows.actions])
    count = len(windows)
    return Evaluation(
        planner=planner.name,
        dataset=windows.dataset,
        split=windows.split,
        horizon=windows.horizon,
        windows=count,
        sampled_from=count if sampled_from is None else sampled_from,
        oracle_task=oracle_task,
        metrics=sums.percents(),
        shared_metrics=None if shared is None else shared.percents(),
        without_plan=sums.without_plan,
        exact=all(plan.exact for plan in plans),
        seconds_per_query=seconds / count,
        token_forwards_per_query=sum(plan.evaluated.token_forwards for plan in plans) / count,
        leaves_per_query=sum(plan.evaluated.leaves for plan in plans) / count,
    ), plans


def _tasks(predicted: NDArray[np.int64] | None, plans: Sequence[Plans]) -> NDArray[np.int64] | None:
    """The task of each query's best plan, as predicted where plans name none.

    None where neither is known.
    """
    named = [int(plan.tasks[0]) if plan.tasks is not None and len(plan) else None for plan in plans]
    if predicted is not None:
        return np.array(
            [
                own if task is None else task
                for task, own in zip(named, predicted.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
    return None if None in named else np.array(named, dtype=np.int64)
