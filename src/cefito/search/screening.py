"""Screening: sequences are looked through in bfloat16, and the possible best decided in float32.

Sequences within a margin of the best are evaluated again. It is three times the largest difference
of both precisions on the sequences evaluated in both, the best by bfloat16 and a sample of others:
measured on each query, but no bound, so that plans are exact only if all were evaluated in float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from cefito.search.base import MemorySettings, Searchable, components_of
from cefito.search.problem import Best, Plans, SearchCost, Space, ranks
from cefito.search.sequences import SequenceEnergies

_KEPT = 1024  # sequences of a query
_FIRST, _SAMPLED = 12, 32  # that are evaluated again whatever the margin: the best, and others
_SAFETY = 3.0  # margin over the largest difference seen


class ScreeningSettings(MemorySettings):
    """Settings of searches that can screen.

    Attributes:
        screening: "on" looks through sequences in bfloat16 and decides between the best in float32,
            by a margin that is no bound, so that plans are not exact; "off" uses float32 alone;
            "auto" is on for guided search of wide fields where bfloat16 is multiplied natively.
    """

    screening: Literal["auto", "on", "off"] = "auto"

    def screens(self, field: Searchable) -> bool:
        """Whether guided search of a field screens."""
        pays = all(component.energies.coarse_pays for component in components_of(field))
        return self.screening == "on" or (self.screening == "auto" and pays)


def kept(top_k: int) -> int:
    """Return how many sequences the first pass keeps, at most all of which are evaluated again."""
    return max(_KEPT, 2 * top_k)


def screened_bound(field: Searchable, cost: SearchCost, top_k: int) -> SearchCost:
    """Return the bound of a search whose best sequences are evaluated twice.

    Args:
        field: Field that is searched.
        cost: Bound of the search in bfloat16.
        top_k: Number of sequences asked for.
    """
    tokens = 1 + 2 * field.horizon * min(cost.leaves, kept(top_k))
    return cost + SearchCost(len(components_of(field)) * tokens, 0)


def rescored(
    field: Searchable, space: Space, coarse: Plans, top_k: int, memory_mib: float
) -> Plans:
    """Evaluate again what may be the best of a query, given the `kept` plans in bfloat16.

    All are evaluated again if `coarse` is exact, so that the answer is.

    Args:
        field: Field in single precision.
        space: The query's sequences.
        coarse: Plans found in bfloat16.
        top_k: Number of sequences asked for.
        memory_mib: Memory bound in MiB.
    """
    energies_of = SequenceEnergies(field, [space], memory_mib, keep=True)
    sequences = np.searchsorted(space.problem.actions, coarse.actions)  # places [n, T]
    energies, scores = np.full((2, len(coarse)), np.nan)  # in float32, where known
    rows, margin = np.arange(len(coarse)), 0.0
    step = 1 if coarse.exact else max(1, len(coarse) // _SAMPLED)
    evaluated, wanted = np.zeros_like(rows, bool), (rows < max(top_k, _FIRST)) | (rows % step == 0)
    while wanted.any():
        values = energies_of.of(0, sequences[wanted])
        objective_scores = space.scores(values, sequences[wanted])
        energies[wanted], scores[wanted] = (
            values,
            values if objective_scores is None else objective_scores,
        )
        evaluated |= wanted
        both = np.isfinite(scores) & np.isfinite(coarse.scores)
        difference = np.abs(scores[both] - coarse.scores[both]).max(initial=0.0)
        margin, last = _SAFETY * float(difference), np.sort(scores[evaluated])[:top_k][-1]
        wanted = ~evaluated & (coarse.scores <= last + margin)
    best = Best(top_k)
    best.add(energies[evaluated], ranks(sequences[evaluated], space.size), scores[evaluated])
    cost = coarse.evaluated + SearchCost(int(energies_of.tokens[0]), 0)
    exact = coarse.exact and int(evaluated.sum()) == cost.leaves
    plans = best.plans(space.problem, space.horizon, cost, exact=exact)
    finite = plans.finite and coarse.finite
    return replace(plans, finite=finite, margin=None if exact else margin)
