"""All searches by their names, and their settings.

A new search is its own file and one entry of `SEARCHES`, or an entry point of another package in
the group `cefito.searches`. Settings that `SearchConfig` lacks follow its name, "beam:width=5".
`tests/search/test_contract.py` holds every entry to the contract of searches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cefito.errors import ConfigError
from cefito.plugins import Registry
from cefito.search.base import Search, values_of
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import AutoSearch, AutoSettings, GuidedSearch, GuidedSettings
from cefito.search.screening import ScreeningSettings
from cefito.settings import Settings, parsed_value, validated


@dataclass(frozen=True)
class SearchEntry:
    """A registered search."""

    search: Callable[..., Search]  # makes it from the values of its settings
    # the settings that it reads, of `SearchConfig` or of its own; others are refused with it
    settings: type[Settings] = Settings
    exact: bool = False  # whether it proves every answer, unless stopped or screened

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the settings of `SearchConfig` that it reads."""
        return tuple(
            name for name in self.settings.model_fields if name in SearchConfig.model_fields
        )

    def make(self, settings: SearchConfig) -> Search:
        """Return the search with the values of these settings, and those behind its name."""
        pairs = [
            assignment.partition("=") for assignment in settings.method.partition(":")[2].split(",")
        ]
        written = {name.strip(): parsed_value(text) for name, _, text in pairs if name}
        shared = {name: getattr(settings, name) for name in self.reads}
        values = validated(
            self.settings, {**written, **shared}, place=f"search '{settings.method}'"
        )
        return self.search(**values_of(values, self.settings))


SEARCHES: Registry[SearchEntry] = Registry(
    "cefito.searches",
    "search",
    {
        "auto": SearchEntry(AutoSearch, AutoSettings),
        "exhaustive": SearchEntry(ExhaustiveSearch, ScreeningSettings, exact=True),
        "guided": SearchEntry(GuidedSearch, GuidedSettings),
    },
    lambda _, entry: "" if isinstance(entry, SearchEntry) else "it is not a SearchEntry",
)
"""All searches by the names that `SearchConfig.method` takes."""


def find_search(name: str) -> SearchEntry:
    """Return a search by its name, which settings of its own may follow behind a colon."""
    name = name.partition(":")[0]
    if name not in SEARCHES:
        raise ConfigError(
            f"unknown search '{name}'; expected one of {', '.join(SEARCHES)}.", setting="method"
        )
    return SEARCHES[name]


class _MethodSettings(Settings):
    """Which search.

    Attributes:
        method: "exhaustive" (paper), "guided", or "auto": exhaustive while it fits the budget,
            else guided; see `cefito.search.settings`.
    """

    method: str = "exhaustive"


class SearchConfig(AutoSettings, _MethodSettings):
    """Settings of all searches; a search with settings of its own is a base class."""


ConfigT = TypeVar("ConfigT", bound=SearchConfig)


def make_search(settings: SearchConfig) -> Search:
    """Return the search that the settings choose."""
    return find_search(settings.method).make(settings)


def search_settings(config: ConfigT, **overrides: Any) -> ConfigT:
    """Return settings with some of them replaced; None keeps a value."""
    changes = {name: value for name, value in overrides.items() if value is not None}
    settings = validated(type(config), {**config.model_dump(), **changes}, place="search")
    chosen = find_search(settings.method)
    chosen.make(settings)  # refuses unknown settings behind the name
    for name in changes:
        readers = [method for method, entry in SEARCHES.items() if name in entry.reads]
        if readers and name not in chosen.reads:
            raise ConfigError(
                f"search '{settings.method}' does not use the setting '{name}'; only "
                f"{', '.join(readers)} {'does' if len(readers) == 1 else 'do'}.",
                setting=name,
            )
    return settings


def changed_settings(config: SearchConfig, usual: SearchConfig) -> dict[str, Any]:
    """Return the settings that differ from the usual ones, in the order of the fields."""
    before = usual.model_dump()
    return {name: value for name, value in config.model_dump().items() if value != before[name]}
