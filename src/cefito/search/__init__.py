"""Search: a problem in, plans out. Knows nothing of networks, only of fields with energies.

Nothing here loads PyTorch before a search runs, so that the settings of searches stay light.
"""

from cefito.search.base import Field, IncrementalEnergies, Search, SpaceSize, Watch
from cefito.search.constraints import Constraints
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import AutoSearch, GuidedSearch
from cefito.search.prior import NGramPrior
from cefito.search.problem import Objective, Plans, Problem, SearchCost
from cefito.search.settings import SEARCHES, SearchConfig, make_search
from cefito.search.step_costs import StepCosts

__all__ = [
    "SEARCHES",
    "AutoSearch",
    "Constraints",
    "ExhaustiveSearch",
    "Field",
    "GuidedSearch",
    "IncrementalEnergies",
    "NGramPrior",
    "Objective",
    "Plans",
    "Problem",
    "Search",
    "SearchConfig",
    "SearchCost",
    "SpaceSize",
    "StepCosts",
    "Watch",
    "make_search",
]
