"""Search: a problem in, plans out. Knows nothing of networks, only of fields that give energies.

The names below are loaded when first used, so that the settings of the search stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cefito.search.auto import AutoSearch
    from cefito.search.beam import BeamSearch
    from cefito.search.constraints import Constraints
    from cefito.search.exhaustive import ExhaustiveSearch
    from cefito.search.guided import GuidedSearch
    from cefito.search.naive import NaiveSearch
    from cefito.search.prior import NGramPrior
    from cefito.search.problem import (
        Field,
        IncrementalEnergies,
        Objective,
        Plans,
        Problem,
        Search,
        SearchCost,
        Watch,
    )
    from cefito.search.registry import SEARCHES, make_search
    from cefito.search.settings import SearchConfig
    from cefito.search.step_costs import StepCosts

_HOMES = {
    "AutoSearch": "cefito.search.auto",
    "BeamSearch": "cefito.search.beam",
    "StepCosts": "cefito.search.step_costs",
    "Constraints": "cefito.search.constraints",
    "SearchCost": "cefito.search.problem",
    "ExhaustiveSearch": "cefito.search.exhaustive",
    "Field": "cefito.search.problem",
    "GuidedSearch": "cefito.search.guided",
    "IncrementalEnergies": "cefito.search.problem",
    "NGramPrior": "cefito.search.prior",
    "NaiveSearch": "cefito.search.naive",
    "Objective": "cefito.search.problem",
    "Plans": "cefito.search.problem",
    "Problem": "cefito.search.problem",
    "SEARCHES": "cefito.search.registry",
    "Search": "cefito.search.problem",
    "SearchConfig": "cefito.search.settings",
    "Watch": "cefito.search.problem",
    "make_search": "cefito.search.registry",
}

__all__ = [
    "SEARCHES",
    "AutoSearch",
    "BeamSearch",
    "Constraints",
    "ExhaustiveSearch",
    "Field",
    "GuidedSearch",
    "IncrementalEnergies",
    "NGramPrior",
    "NaiveSearch",
    "Objective",
    "Plans",
    "Problem",
    "Search",
    "SearchConfig",
    "SearchCost",
    "StepCosts",
    "Watch",
    "make_search",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cefito.search' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
