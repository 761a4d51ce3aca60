"""Search: a problem in, plans out. Knows nothing of networks, only of fields that give energies."""

from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.naive import NaiveSearch
from cefito.search.problem import Effort, Field, IncrementalEnergies, Plans, Problem, Search

__all__ = ["Effort", "ExhaustiveSearch", "Field", "IncrementalEnergies", "NaiveSearch", "Plans", "Problem", "Search"]
