"""All searches by their names. A new search is its own file and one entry here.

`tests/search/test_contract.py` holds every entry to the contract of searches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cefito.errors import ConfigError
from cefito.search.auto import AutoSearch, AutoSettings
from cefito.search.base import ScreeningSettings, Search, values_of
from cefito.search.beam import BeamSearch, BeamSettings
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch, GuidedSettings
from cefito.search.naive import NaiveSearch
from cefito.settings import Settings

__all__ = ["SEARCHES", "SearchEntry", "find_search"]


@dataclass(frozen=True)
class SearchEntry:
    """A registered search."""

    search: Callable[..., Search]  # makes it from the values of its settings
    # the settings that it reads; other settings of searches are refused with it
    settings: type[Settings] = Settings
    exact: bool = False  # whether it proves every answer, unless it is stopped

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the settings that it reads."""
        return tuple(self.settings.model_fields)

    def make(self, settings: Settings) -> Search:
        """Return the search with the values of these settings."""
        return self.search(**values_of(settings, self.settings))


SEARCHES: dict[str, SearchEntry] = {
    "auto": SearchEntry(AutoSearch, AutoSettings),
    "exhaustive": SearchEntry(ExhaustiveSearch, ScreeningSettings, exact=True),
    "guided": SearchEntry(GuidedSearch, GuidedSettings),
    "beam": SearchEntry(BeamSearch, BeamSettings),
    "naive": SearchEntry(NaiveSearch, exact=True),
}
"""All searches by the names that `SearchConfig.method` takes."""


def find_search(name: str) -> SearchEntry:
    """Return a search by its name."""
    if name not in SEARCHES:
        raise ConfigError(
            f"unknown search '{name}'; expected one of {', '.join(SEARCHES)}.", setting="method"
        )
    return SEARCHES[name]
