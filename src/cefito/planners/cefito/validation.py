"""Validation windows as problems small enough to be searched exactly after every few epochs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.data.windows import Windows
from cefito.search.problem import Problem

__all__ = ["validation_problems"]


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
