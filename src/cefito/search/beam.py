"""Beam search: keeps the best prefixes of each length.

The field predicts the goal of full sequences only, so that a beam completes each prefix by the
cheapest continuation under the guide. If the width drops nothing, this is exhaustive search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.search.base import MemorySettings, Search, Searchable, SpaceSize, Watch, components_of
from cefito.search.problem import Best, Plans, Problems, SearchCost, Space, compiled
from cefito.search.problem import ranks as ranks_of
from cefito.search.screening import SequenceEnergies

__all__ = ["BeamSearch", "BeamSettings"]

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]


class BeamSettings(MemorySettings):
    """Settings of "beam".

    Attributes:
        width: Of "beam": prefixes kept.
        diversity: Of "beam": added to a prefix's score for each better sibling, a prefix with the
            same parent; 0 is plain beam search (Li and Jurafsky, 2016, "Mutual information and
            diverse decoding").
    """

    width: int = Field(32, ge=1)
    diversity: float = Field(0.0, ge=0)


class BeamSearch(BeamSettings, Search):
    """Keeps the `width` best prefixes of each length; exact if no prefix was dropped."""

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:  # noqa: ARG002
        """Return the cost of the children of `width` prefixes at each step."""
        children = sum(min(self.width, size.leaves) * count for count in size.choices)
        leaves = min(size.leaves, children)
        return SearchCost(len(components_of(field)) * size.tokens_apart(leaves), leaves)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return good sequences of each problem, at most `top_k`."""
        answers = []
        for space in compiled(problems, field.horizon, top_k):
            answers.append(self._solve(field, space, top_k, watch))
            watch.advance(1)
        return answers

    def _solve(self, field: Searchable, space: Space, top_k: int, watch: Watch) -> Plans:
        energies = SequenceEnergies(field, [space], self.memory_mib)
        best, exact = Best(top_k), True
        known: dict[int, float] = {}  # score of each evaluated sequence, by rank
        prefixes = np.zeros((1, 0), dtype=np.int64)
        for step in range(field.horizon):
            if step and watch.stop():
                exact = False
                break
            # Every child of every prefix kept, [n, step + 1], completed to full sequences [n, T].
            # Many completions coincide, also with those of earlier steps: each is evaluated once.
            parents, place = np.nonzero(space.children(prefixes))
            prefixes = np.concatenate([prefixes[parents], place[:, None]], axis=1)
            full = space.guide.completions(prefixes, None if space.free else space.children)
            rank = ranks_of(full, space.size)
            new = np.unique(rank, return_index=True)[1]
            new = new[[one not in known for one in rank[new].tolist()]]
            values = energies(np.zeros(len(new), dtype=np.int64), full[new])
            scores = space.scores(values, full[new])
            best.add(values, rank[new], scores)
            scored = values if scores is None else scores
            known.update(zip(rank[new].tolist(), scored.tolist(), strict=True))
            if step < field.horizon - 1 and len(prefixes) > self.width:
                exact = False
                score = np.array([known[one] for one in rank.tolist()])
                prefixes = prefixes[self._kept(score, parents)]
        cost = SearchCost(token_forwards=int(energies.tokens[0]), leaves=int(energies.leaves[0]))
        return best.plans(space.problem, field.horizon, cost, exact=exact)

    def _kept(self, scores: Reals, parents: Ids) -> Ids:
        """Return the rows of the best prefixes, in their order."""
        if self.diversity:
            # sorted by parent and score, a prefix's place in its family is the number of better
            # siblings: score += diversity · place
            order = np.lexsort((scores, parents))
            family = np.searchsorted(parents[order], parents[order])
            scores = scores.copy()
            scores[order] += self.diversity * (np.arange(len(order)) - family)
        return np.sort(scores.argsort(kind="stable")[: self.width])
