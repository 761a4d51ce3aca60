"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.search.settings import SearchConfig

__all__ = ["AS_TRAINED", "SearchOptions", "settings"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How plans are searched; what is left out stays as the run was trained.

    Attributes:
        search: auto, exhaustive, guided, beam, gradient or naive.
        budget: Of auto: what an exact search may cost, in 10⁹ operations; beyond, the search is
            guided.
        tasks: How many of the likeliest tasks to search; 0 for as many as did best on the
            validation split.
        prior_weight: Weight of the prior over sequences; -1 for the run's own.
        pruning: Allow only transitions seen in training and so many likely others; -1 allows all.
        objective: energy alone, with the prior over sequences (prior), with prior and step
            probabilities (fitted), or these without the energy (likelihood).
        proposals: Of guided: how many likely sequences are re-scored.
        starts: Of guided: of how many of the best sequences the neighbours are evaluated.
        refinements: Of guided and gradient: combinations of changes evaluated a round; 0 for none.
        width: Of beam: how many prefixes are kept.
        diversity: Of beam: what each better sibling adds to a prefix's score.
        memory_mib: Memory bound, MiB.
    """

    search: str | None = None
    budget: float | None = None
    tasks: int | None = None
    prior_weight: float | None = None
    pruning: int | None = None
    objective: str | None = None
    proposals: int | None = None
    starts: int | None = None
    refinements: int | None = None
    width: int | None = None
    diversity: float | None = None
    memory_mib: float | None = None

    def apply(self, config: SearchConfig) -> SearchConfig:
        """A run's settings with those replaced that were given.

        Raises:
            ConfigError: A value that cannot be; the message names the option.
        """
        from cefito.search.settings import search_settings

        return search_settings(
            config,
            method=self.search,
            budget_gflop=self.budget,
            tasks=self.tasks,
            prior_weight=self.prior_weight,
            pruning=self.pruning,
            objective=self.objective,
            proposals=self.proposals,
            starts=self.starts,
            refinements=self.refinements,
            width=self.width,
            diversity=self.diversity,
            memory_mib=self.memory_mib,
        )


AS_TRAINED = SearchOptions()
"""Nothing changed."""


def settings(given: Sequence[str]) -> dict[str, str]:
    """What `--set` was given: dotted keys to values.

    Raises:
        ConfigError: An entry without a key or without "=".
    """
    values = {}
    for entry in given:
        key, sign, value = entry.partition("=")
        if not sign or not key.strip():
            raise ConfigError(
                f"--set {entry}: expected KEY=VALUE, as in --set training.optimiser.epochs=20."
            )
        values[key.strip()] = value.strip()
    return values
