"""Search: a problem in, plans out. Knows nothing of networks, only of fields that give energies."""

from cefito.search.auto import AutoSearch
from cefito.search.beam import BeamSearch
from cefito.search.chain import Chain
from cefito.search.constraints import Constraints
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.naive import NaiveSearch
from cefito.search.prior import NGramPrior
from cefito.search.problem import (
    Effort,
    Field,
    IncrementalEnergies,
    Objective,
    Plans,
    Problem,
    Search,
    Watch,
)
from cefito.search.registry import SEARCHES, make_search
from cefito.search.settings import SearchConfig

__all__ = [
    "SEARCHES",
    "AutoSearch",
    "BeamSearch",
    "Chain",
    "Constraints",
    "Effort",
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
    "Watch",
    "make_search",
]
