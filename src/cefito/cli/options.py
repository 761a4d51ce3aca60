"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

if TYPE_CHECKING:
    from cefito.training.config import SearchConfig

__all__ = ["AS_TRAINED", "SearchOptions"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How plans are searched; what is left out stays as the run was trained.

    Attributes:
        search: auto, exhaustive, guided, beam, gradient or naive.
        budget: Of auto: what an exact search may cost, in 10⁹ operations; beyond, the search is guided.
        tasks: How many of the likeliest tasks to search; 0 for as many as did best on the validation split.
        prior_weight: Weight of the prior over sequences; -1 for the run's own.
        pruning: Allow only transitions seen in training and so many likely others; -1 allows all.
        objective: energy alone, with the prior over sequences (prior), with prior and step probabilities (fitted), or these
            without the energy (likelihood).
        proposals: Of guided: how many likely sequences are re-scored.
        memory_mib: Memory bound, MiB.
    """

    search: str | None = None
    budget: float | None = None
    tasks: int | None = None
    prior_weight: float | None = None
    pruning: int | None = None
    objective: str | None = None
    proposals: int | None = None
    memory_mib: float | None = None

    def apply(self, config: SearchConfig) -> SearchConfig:
        """A run's settings with those replaced that were given.

        Raises:
            ConfigError: A value that cannot be; the message names the option.
        """
        from cefito.planners.settings import search_settings

        return search_settings(
            config, method=self.search, budget_gflop=self.budget, tasks=self.tasks, prior_weight=self.prior_weight,
            pruning=self.pruning, objective=self.objective, proposals=self.proposals, memory_mib=self.memory_mib)


AS_TRAINED = SearchOptions()
"""Nothing changed."""
