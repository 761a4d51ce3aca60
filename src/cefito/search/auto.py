"""Exact search where that is affordable, guided search elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from cefito.errors import ConfigError
from cefito.search.component import Searchable, parts_of
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.problem import Plans, Problem, Search, Watch
from cefito.search.space import Space, compiled

__all__ = ["AutoSearch"]


class AutoSearch:
    """Exhaustive search for problems that fit a budget of operations, guided for the others.

    Args:
        exhaustive: The exact search.
        guided: The search beyond the budget.
        budget_gflop: Most operations that a problem's exact search may take, in 10⁹ floating-point
            operations.

    Raises:
        ConfigError: A negative budget.
    """

    def __init__(
        self, *, exhaustive: ExhaustiveSearch, guided: GuidedSearch, budget_gflop: float
    ) -> None:
        if not budget_gflop >= 0:
            raise ConfigError(f"budget of {budget_gflop} GFLOP; expected a number of at least 0.")
        self.exhaustive, self.guided, self.budget_gflop = exhaustive, guided, budget_gflop

    def affordable(self, field: Searchable, problem: Problem) -> bool:
        """Whether an exact search of a problem fits the budget, were it not for constraints."""
        size, horizon = len(problem.actions), field.horizon
        tokens = 1 + 2 * sum(size**level for level in range(1, horizon + 1))
        each = sum(part.energies.flops_per_token for part in parts_of(field))
        return bool(tokens * each <= self.budget_gflop * 1e9)

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """The plans of each problem, in the order of the problems.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)  # refuses bad problems before any work
        affordable = [self.affordable(field, space.problem) for space in spaces]
        answers: dict[int, Plans] = {}
        searches: tuple[tuple[Search, bool], ...] = ((self.exhaustive, True), (self.guided, False))
        for search, within in searches:
            rows = [row for row, fits in enumerate(affordable) if fits == within]
            plans = search.search(field, [spaces[row] for row in rows], top_k, watch)
            answers.update(zip(rows, plans, strict=True))
        return [answers[row] for row in range(len(spaces))]
