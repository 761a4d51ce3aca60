"""Validation of a field in training: plans for validation windows, at a bounded cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.search.base import Screening, Search
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.problem import Plans, Problem
from cefito.training.distributed import Processes

__all__ = ["plan_scores", "validation_problems", "validation_searches", "warn_guided"]

logger = logging.getLogger(__name__)


def validation_problems(
    val: Windows, space: ActionSpace, *, windows: int, candidates: int
) -> tuple[list[Problem], NDArray[np.int64]]:
    """Return a fixed sample of validation windows as problems that can be searched often.

    If A(c)^T exceeds `candidates`, the problem is thinned: it keeps the actions of the true
    sequence and a fixed random choice of the task's others. At long horizons the true actions alone
    may make more sequences; then the problem keeps all of the task's actions, for guided search.
    The true task is used, so that the score is the field's alone.
    """
    # returns problems, and the true sequences [N, T]
    sample = val.sample(windows or None, seed=0)
    generator = np.random.default_rng(0)
    widest = max(1, int(candidates ** (1 / val.horizon) + 1e-9))
    problems = []
    for row, task in enumerate(sample.tasks):
        allowed = space.actions[task]
        if len(allowed) > widest:
            true = sorted(set(sample.actions[row].tolist()) & set(allowed))
            others = [action for action in allowed if action not in true]
            extra = generator.choice(
                others, size=max(0, widest - len(true)), replace=False
            ).tolist()
            if len(true) <= widest:
                allowed = tuple(sorted({*true, *extra}))
        problems.append(
            Problem(initial=sample.initial[row], goal=sample.goal[row], actions=allowed)
        )
    return problems, sample.actions


def validation_searches(
    field: EnergyField, *, candidates: int, memory_mib: float, screening: Screening = "off"
) -> tuple[ExhaustiveSearch, GuidedSearch]:
    """Return the searches of thinned validation problems and of all others."""
    tokens = 3 * candidates  # two for each leaf, and the prefixes'
    guided = GuidedSearch(
        proposals=max(1, candidates // 4),
        budget_gflop=tokens * IncrementalField(field).flops_per_token / 1e9,
        memory_mib=memory_mib,
        screening=screening,
    )
    return ExhaustiveSearch(memory_mib=memory_mib, screening=screening), guided


def warn_guided(problems: Sequence[Problem], *, horizon: int, candidates: int) -> None:
    """Warn of validation windows that are planned by guided search."""
    guided = sum(not _bounded(problem, horizon, candidates) for problem in problems)
    if guided:
        logger.warning(
            "validation: %d of %d windows have more than %s sequences even of their true actions "
            "alone; they are planned by guided search among all actions of their task, which need "
            "not find the sequence of lowest energy",
            guided,
            len(problems),
            f"{candidates:,}",
        )


def plan_scores(
    field: EnergyField,
    group: Processes,
    *,
    problems: Sequence[Problem],
    actual: NDArray[np.int64],  # their true sequences [N, T]
    memory_mib: float,
    candidates: int,
    screening: Screening = "off",
) -> Mapping[str, float]:
    """Return success rate and mean accuracy, in per cent, of plans for validation problems."""
    rows = group.share(torch.arange(len(problems))).tolist()
    incremental = IncrementalField(field)
    exhaustive, guided = validation_searches(
        field, candidates=candidates, memory_mib=memory_mib, screening=screening
    )
    searches: tuple[tuple[Search, bool], ...] = ((exhaustive, True), (guided, False))
    plans: dict[int, Plans] = {}
    for search, within in searches:
        some = [row for row in rows if _bounded(problems[row], field.horizon, candidates) == within]
        found = search.search(incremental, [problems[row] for row in some], 1)
        plans |= zip(some, found, strict=True)
    best = np.array([plans[row].actions[0] for row in rows]).reshape(-1, actual.shape[1])
    right = best == actual[rows]
    sums = torch.tensor(
        [right.all(axis=1).sum(), right.mean(axis=1).sum()],
        dtype=torch.float64,
        device=next(field.parameters()).device,
    )
    success, accuracy = (100 * group.sum(sums) / len(problems)).tolist()
    return {"success_rate": success, "mean_accuracy": accuracy}


def _bounded(problem: Problem, horizon: int, candidates: int) -> bool:
    return bool(len(problem.actions) ** horizon <= candidates)
