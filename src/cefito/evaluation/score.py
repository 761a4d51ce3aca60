"""Scoring a planner on windows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.evaluation.calibration import best_probabilities, calibration, searched_mass
from cefito.evaluation.metrics import TOP_K, MetricSums
from cefito.evaluation.records import Evaluation, Replies
from cefito.planners.base import Planner, Queries
from cefito.planners.methods import methods_with
from cefito.progress import Progress, silent
from cefito.search.problem import Plans

__all__ = ["Evaluation", "evaluate_planner", "planned_tasks", "successes"]


def evaluate_planner(
    planner: Planner,
    windows: Windows,
    *,
    oracle_task: bool = False,
    oracle_ends: bool = False,
    oracle_between: bool = False,
    top_k: int = TOP_K,
    sampled_from: int | None = None,
    progress: Progress = silent,
) -> tuple[Evaluation, list[Plans]]:
    """Plan windows and score the plans; return both.

    Args:
        planner: A fitted planner.
        windows: Windows with their true sequences.
        oracle_task: Give the planner the true tasks.
        oracle_ends: Give the planner the true first and last actions.
        oracle_between: Give the planner the true observations between the steps.
        top_k: Plans for each window, and the k of the top-k success rate.
        sampled_from: Number of windows that these are a sample of.
        progress: Shows progress.

    Raises:
        ConfigError: No windows, windows of another horizon, or truth that the planner does not use
            or the windows lack.
    """
    if not len(windows) or windows.horizon != planner.horizon:
        raise ConfigError(
            f"{len(windows)} windows of {windows.horizon} actions: {planner.name} is scored on one "
            f"or more of {planner.horizon}. Cut windows of this horizon."
        )
    if oracle_ends and not planner.abilities.true_ends:
        raise ConfigError(
            f"{planner.name} makes no use of the true first and last action; "
            f"of the methods only {methods_with('true_ends')} do. Leave them out.",
            setting="oracle_ends",
        )
    if oracle_between and not (planner.abilities.true_between and windows.between is not None):
        raise ConfigError(
            f"{planner.name}: the states between the steps cannot be given; "
            f"of the methods only {methods_with('true_between')} see them. Leave them out.",
            setting="oracle_between",
        )
    queries = Queries.from_windows(
        windows, oracle_task=oracle_task, oracle_ends=oracle_ends, oracle_between=oracle_between
    )
    started = time.perf_counter()
    plans = planner.plan(queries, top_k, progress=progress)
    seconds = time.perf_counter() - started
    sums = MetricSums(top_k=top_k)
    sums.add(
        [plan.actions for plan in plans],
        windows.actions,
        tasks=planned_tasks(planner, queries, plans),
        actual_tasks=windows.tasks,
    )
    shared = None
    if windows.taxonomy.to_shared is not None:
        to_shared, shared = np.array(windows.taxonomy.to_shared), MetricSums(top_k=top_k)
        shared.add([to_shared[plan.actions] for plan in plans], to_shared[windows.actions])
    count = len(windows)
    probabilities = best_probabilities(plans)
    evaluation = Evaluation(
        planner=planner.name,
        dataset=windows.dataset,
        split=windows.split,
        horizon=windows.horizon,
        windows=count,
        sampled_from=count if sampled_from is None else sampled_from,
        oracle_task=oracle_task,
        oracle_ends=oracle_ends or None,
        oracle_between=oracle_between or None,
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
            else calibration(probabilities, successes(plans, windows), mass=searched_mass(plans))
        ),
        replies=_replies(plans),
    )
    return evaluation, plans


def successes(plans: Sequence[Plans], windows: Windows) -> NDArray[np.bool_]:
    """Whether the whole sequence of each window's best plan is right [N]."""
    return np.array(
        [
            len(plan) > 0 and bool((plan.actions[0] == actual).all())
            for plan, actual in zip(plans, windows.actions, strict=True)
        ]
    )


def planned_tasks(
    planner: Planner, queries: Queries, plans: Sequence[Plans]
) -> NDArray[np.int64] | None:
    """The planned, else predicted, task of each query [N]; None if one is unknown."""
    tasks = np.full(len(plans), -1, dtype=np.int64)
    unnamed = []
    for row, plan in enumerate(plans):
        if plan.tasks is not None and len(plan):
            tasks[row] = plan.tasks[0]
        else:
            unnamed.append(row)
    if unnamed:
        predicted = planner.predict_tasks(queries.subset(unnamed))
        if predicted is None:
            return None
        tasks[unnamed] = predicted
    return tasks


def _replies(plans: Sequence[Plans]) -> Replies | None:
    """Summary of a language model's replies; None if none was asked."""
    replies = [plan.reply for plan in plans if plan.reply is not None]
    if not replies:
        return None
    outcomes = Counter(reply.outcome for reply in replies)
    requests = {reply.key: reply for reply in replies if reply.key}.values()
    days = sorted(reply.asked[:10] for reply in requests)
    return Replies(
        model=replies[0].model,
        host=replies[0].host,
        served=tuple(sorted({reply.served for reply in requests})),
        first=days[0] if days else "",
        last=days[-1] if days else "",
        queries=len(replies),
        repaired=outcomes["repaired"],
        replaced=outcomes["replaced"],
        unasked=outcomes["unasked"],
        requests=sum(reply.requests for reply in requests),
        prompt_tokens=sum(reply.prompt_tokens for reply in requests),
        completion_tokens=sum(reply.completion_tokens for reply in requests),
    )
