"""Exact search if a problem fits a budget, guided search otherwise."""

from __future__ import annotations

from pydantic import Field

from cefito.search.base import ScreeningSettings, Search, SpaceSize, Watch, operations, values_of
from cefito.search.energies import Searchable, components_of
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch, GuidedSettings
from cefito.search.problem import Plans, SearchCost
from cefito.search.space import Problems, compiled

__all__ = ["AutoSearch", "AutoSettings"]


class AutoSettings(GuidedSettings):
    """Settings of "auto".

    Attributes:
        budget_gflop: Of "auto": most operations that an exhaustive search may take, 10⁹.
    """

    budget_gflop: float = Field(500, ge=0)


class AutoSearch(AutoSettings, Search):
    """Exhaustive search for problems that fit a budget of operations, guided for the others."""

    @property
    def exhaustive(self) -> ExhaustiveSearch:
        """The exact search."""
        return ExhaustiveSearch(**values_of(self, ScreeningSettings))

    @property
    def guided(self) -> GuidedSearch:
        """The search beyond the budget."""
        return GuidedSearch(**values_of(self, GuidedSettings))

    def affordable(self, field: Searchable, actions: int) -> bool:
        """Whether an exact search over so many actions fits the budget without constraints."""
        whole = SpaceSize(actions, (actions,) * field.horizon, free=True)
        tokens = len(components_of(field)) * whole.tree_tokens
        return operations(field, SearchCost(tokens, whole.leaves)) <= self.budget_gflop * 1e9

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the bound of the search that it chooses."""
        search = self.exhaustive if self.affordable(field, size.actions) else self.guided
        return search.cost_bound(field, size, top_k)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the plans of each problem, in the order of the problems."""
        spaces = compiled(problems, field.horizon, top_k)  # refuses bad problems before any work
        affordable = [self.affordable(field, space.size) for space in spaces]
        answers: dict[int, Plans] = {}
        searches: tuple[tuple[Search, bool], ...] = ((self.exhaustive, True), (self.guided, False))
        for search, within in searches:
            rows = [row for row, fits in enumerate(affordable) if fits == within]
            plans = search.search(field, [spaces[row] for row in rows], top_k, watch)
            answers.update(zip(rows, plans, strict=True))
        return [answers[row] for row in range(len(spaces))]
