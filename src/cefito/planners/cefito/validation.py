"""Validation windows as problems small enough to be searched exactly after every few epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.problem import Problem
from cefito.training.distributed import Processes

__all__ = ["plan_scores", "validation_problems"]


def validation_problems(
    val: Windows, space: ActionSpace, *, windows: int, candidates: int
) -> tuple[list[Problem], NDArray[np.int64]]:
    """A fixed sample of validation windows as problems of at most so many candidates each.

    Where A(c)^T is larger, the problem is thinned: it keeps the actions of the true sequence and a
    fixed random choice of the task's others. The true task is taken, so that the field is judged by
    itself.

    Returns:
        Problems, and the true sequences [N, T].
    """
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
            allowed = tuple(sorted({*true, *extra}))
        problems.append(
            Problem(initial=sample.initial[row], goal=sample.goal[row], actions=allowed)
        )
    return problems, sample.actions


def plan_scores(
    field: EnergyField,
    group: Processes,
    *,
    problems: Sequence[Problem],
    actual: NDArray[np.int64],
    memory_mib: float,
) -> Mapping[str, float]:
    """Success rate and mean accuracy, per cent, of plans for validation problems.

    Args:
        field: The field, searched exhaustively by its energy alone.
        group: The processes that share the problems out.
        problems: Validation problems.
        actual: Their true sequences [N, T].
        memory_mib: Memory bound of the search.
    """
    rows = group.share(torch.arange(len(problems))).tolist()
    search = ExhaustiveSearch(memory_mib=memory_mib)
    plans = search.search(IncrementalField(field), [problems[row] for row in rows], 1)
    best = np.array([plan.actions[0] for plan in plans]).reshape(-1, actual.shape[1])
    right = best == actual[rows]
    sums = torch.tensor(
        [right.all(axis=1).sum(), right.mean(axis=1).sum()],
        dtype=torch.float64,
        device=next(field.parameters()).device,
    )
    success, accuracy = (100 * group.sum(sums) / len(problems)).tolist()
    return {"success_rate": success, "mean_accuracy": accuracy}
