"""The reference: every candidate evaluated by itself, in batches of full sequences, as the paper does (Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cefito.search.problem import Best, Effort, Field, Plans, Problem, check_problems

__all__ = ["NaiveSearch"]


class NaiveSearch:
    """Exhaustive enumeration of A^T by full forwards.

    Args:
        batch: Candidates a forward.
    """

    def __init__(self, *, batch: int = 4096) -> None:
        self.batch = batch

    def search(self, field: Field, problems: Sequence[Problem], top_k: int) -> list[Plans]:
        """The `top_k` sequences of lowest energy of each problem.

        Raises:
            ConfigError: A problem without actions, or top_k below 1.
        """
        check_problems(problems, top_k)
        return [self._one(field, problem, top_k) for problem in problems]

    def _one(self, field: Field, problem: Problem, top_k: int) -> Plans:
        horizon, allowed = field.horizon, torch.tensor(problem.actions, device=field.device)
        initial = torch.from_numpy(problem.initial).to(field.device)
        goal = torch.from_numpy(problem.goal).to(field.device)
        total, best = len(allowed) ** horizon, Best(top_k)
        powers = len(allowed) ** torch.arange(horizon - 1, -1, -1, device=field.device)
        for first in range(0, total, self.batch):
            ranks = torch.arange(first, min(first + self.batch, total), device=field.device)
            actions = allowed[ranks[:, None] // powers % len(allowed)]
            best.add(field.energy(initial.expand(len(ranks), -1), goal.expand(len(ranks), -1), actions), first)
        effort = Effort(token_forwards=total * (2 * horizon + 1), leaves=total)
        return best.plans(problem, horizon, effort, exact=True)
