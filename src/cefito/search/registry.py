"""Every search by its name.

Whoever adds one registers it here and nowhere else; a setting of its own is a field of
`SearchConfig`. `tests/search/test_contract.py` then holds it to what every search promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cefito.errors import ConfigError
from cefito.search.auto import AutoSearch
from cefito.search.beam import BeamSearch
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.naive import NaiveSearch
from cefito.search.problem import Search
from cefito.search.settings import SearchConfig

__all__ = ["SEARCHES", "SearchEntry", "find_search", "make_search"]


@dataclass(frozen=True)
class SearchEntry:
    """A way to search.

    Attributes:
        make: Makes it from the settings.
        reads: Settings that it reads, of those that say how to search; others are refused with it.
        exact: Whether it proves its answer whatever the problem, unless it is stopped.
    """

    make: Callable[[SearchConfig], Search]
    reads: tuple[str, ...] = ()
    exact: bool = False


def _exhaustive(settings: SearchConfig) -> ExhaustiveSearch:
    return ExhaustiveSearch(memory_mib=settings.memory_mib, screening=settings.screening)


def _guided(settings: SearchConfig) -> GuidedSearch:
    return GuidedSearch(
        proposals=settings.proposals,
        starts=settings.starts,
        refinements=settings.refinements,
        memory_mib=settings.memory_mib,
        screening=settings.screening,
    )


def _auto(settings: SearchConfig) -> AutoSearch:
    return AutoSearch(
        exhaustive=_exhaustive(settings),
        guided=_guided(settings),
        budget_gflop=settings.budget_gflop,
    )


def _beam(settings: SearchConfig) -> BeamSearch:
    return BeamSearch(
        width=settings.width, diversity=settings.diversity, memory_mib=settings.memory_mib
    )


def _naive(settings: SearchConfig) -> NaiveSearch:  # noqa: ARG001
    return NaiveSearch()


_GUIDED = ("proposals", "starts", "refinements")
SEARCHES: dict[str, SearchEntry] = {
    "auto": SearchEntry(_auto, ("memory_mib", "screening", "budget_gflop", *_GUIDED)),
    "exhaustive": SearchEntry(_exhaustive, ("memory_mib", "screening"), exact=True),
    "guided": SearchEntry(_guided, ("memory_mib", "screening", *_GUIDED)),
    "beam": SearchEntry(_beam, ("memory_mib", "width", "diversity")),
    "naive": SearchEntry(_naive, exact=True),
}
"""All searches by the names that `SearchConfig.method` takes. New ones are added here only."""


def make_search(settings: SearchConfig) -> Search:
    """The search that settings ask for.

    Raises:
        ConfigError: Unknown method, or a setting out of range.
    """
    return find_search(settings.method).make(settings)


def find_search(name: str) -> SearchEntry:
    """A search by its name.

    Raises:
        ConfigError: There is none.
    """
    if name not in SEARCHES:
        raise ConfigError(
            f"unknown search '{name}'; expected one of {', '.join(SEARCHES)}.", setting="method"
        )
    return SEARCHES[name]
