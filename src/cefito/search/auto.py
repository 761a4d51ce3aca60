"""One way to a search by its name; "auto" is exact while that is affordable and guided beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from cefito.errors import ConfigError
from cefito.search.beam import BeamSearch
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.gradient import GradientSearch
from cefito.search.guided import GuidedSearch
from cefito.search.naive import NaiveSearch
from cefito.search.problem import IncrementalEnergies, Plans, Problem, Search, Watch
from cefito.search.space import compiled

__all__ = ["AutoSearch", "Method", "make_search"]

Method = Literal["auto", "exhaustive", "guided", "gradient", "beam", "naive"]


class AutoSearch:
    """Exhaustive search for problems whose token forwards fit a budget.

    Guided search for the others.

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

    def affordable(self, field: IncrementalEnergies[Any], problem: Problem) -> bool:
        """Whether an exact search of the problem fits the budget.

        What constraints save is not counted.
        """
        size, horizon = len(problem.actions), field.horizon
        tokens = 1 + 2 * sum(size**level for level in range(1, horizon + 1))
        return bool(tokens * field.flops_per_token <= self.budget_gflop * 1e9)

    def search(
        self,
        field: IncrementalEnergies[Any],
        problems: Sequence[Problem],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """The plans of each problem, in the order of the problems.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        compiled(
            problems, field.horizon, top_k
        )  # refuses a bad problem of either search before any work
        exact = [self.affordable(field, problem) for problem in problems]
        found: dict[int, Plans] = {}
        searches: tuple[tuple[Search, bool], ...] = ((self.exhaustive, True), (self.guided, False))
        for search, chosen in searches:
            rows = [row for row, one in enumerate(exact) if one == chosen]
            plans = search.search(field, [problems[row] for row in rows], top_k, watch)
            found.update(zip(rows, plans, strict=True))
        return [found[row] for row in range(len(problems))]


def make_search(
    method: Method = "auto",
    *,
    memory_mib: float = 1024,
    budget_gflop: float = 500,
    proposals: int = 512,
    starts: int = 12,
    refinements: int = 256,
    width: int = 32,
    diversity: float = 0.0,
) -> Search:
    """A search by its name.

    Args:
        method: "exhaustive", "guided", "gradient", "beam", "naive", or "auto", which is exact while
            the budget allows it.
        memory_mib: Memory bound, MiB.
        budget_gflop: Of "auto": what an exact search may cost, 10⁹ operations.
        proposals: Of "guided": sequences taken from the guide.
        starts: Of "guided": best sequences whose neighbours are evaluated.
        refinements: Of "guided" and "gradient": combinations of changes evaluated a round.
        width: Of "beam": prefixes kept.
        diversity: Of "beam": what each better sibling adds to a prefix's score.

    Raises:
        ConfigError: Unknown method or a setting out of range.
    """
    exhaustive = ExhaustiveSearch(memory_mib=memory_mib)
    guided = GuidedSearch(
        proposals=proposals, starts=starts, refinements=refinements, memory_mib=memory_mib
    )
    if method == "auto":
        return AutoSearch(exhaustive=exhaustive, guided=guided, budget_gflop=budget_gflop)
    if method == "exhaustive":
        return exhaustive
    if method == "guided":
        return guided
    if method == "gradient":
        return GradientSearch(refinements=refinements, memory_mib=memory_mib)
    if method == "beam":
        return BeamSearch(width=width, diversity=diversity, memory_mib=memory_mib)
    if method == "naive":
        return NaiveSearch()
    raise ConfigError(
        f"unknown search '{method}'; expected auto, exhaustive, guided, gradient, beam or naive."
    )
