"""Beam search: prefixes are kept by the score of the sequence that they are likely to become.

The field predicts the goal of full sequences only. A prefix is therefore completed by the cheapest
continuation under the guide, and the objective of that sequence is the prefix's score. With a width
that drops nothing this is exhaustive search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.component import Searchable
from cefito.search.problem import Best, Plans, Problem, SearchCost, Watch
from cefito.search.problem import ranks as ranks_of
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled
from cefito.search.step_costs import StepCosts

__all__ = ["BeamSearch"]


class BeamSearch:
    """Keeps the `width` best prefixes of each length.

    Args:
        width: Prefixes kept.
        diversity: What a prefix's score rises by for each better sibling (a prefix that continues
            the same one), in the units of the objective; 0 is plain beam search (Li and Jurafsky,
            2016, "Mutual information and diverse decoding").
        memory_mib: Bound on the memory of the prefixes computed at once, in MiB.

    Raises:
        ConfigError: A setting out of range.
    """

    def __init__(
        self, *, width: int = 32, diversity: float = 0.0, memory_mib: float = 1024
    ) -> None:
        if width < 1 or not diversity >= 0 or not memory_mib > 0:
            raise ConfigError(
                f"beam search of width {width}, diversity {diversity} and {memory_mib} MiB; "
                "expected at least 1, at least 0 and more than 0."
            )
        self.width, self.diversity, self.memory_mib = width, diversity, memory_mib

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`; exact where no prefix was dropped.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        answers = []
        for space in compiled(problems, field.horizon, top_k):
            answers.append(self._solve(field, space, top_k, watch))
            watch.advance(1)
        return answers

    def _solve(self, field: Searchable, space: Space, top_k: int, watch: Watch) -> Plans:
        energies = SequenceEnergies(field, [space], self.memory_mib)
        guide = _within(space)
        best, seen, exact = Best(top_k), _Seen(), True
        prefixes = np.zeros((1, 0), dtype=np.int64)
        for step in range(field.horizon):
            if step and watch.stop():
                exact = False
                break
            # Every child of every prefix kept, each completed to a full sequence. Completions meet
            # often, among children and with those of earlier steps: each is evaluated once.
            parents, place = np.nonzero(space.children(prefixes))
            prefixes = np.concatenate([prefixes[parents], place[:, None]], axis=1)
            full = guide.completions(prefixes, None if space.free else space.children)
            allowed = space.allows(full)
            rank = ranks_of(full, space.size)
            new = np.flatnonzero(allowed)[np.unique(rank[allowed], return_index=True)[1]]
            new = new[~seen.has(rank[new])]
            values = energies(np.zeros(len(new), dtype=np.int64), full[new])
            scores = space.scores(torch.from_numpy(values), full[new])
            best.add(torch.from_numpy(values), torch.from_numpy(rank[new]), scores)
            seen.add(rank[new], values if scores is None else scores.numpy())
            if step < field.horizon - 1 and len(prefixes) > self.width:
                exact = False
                # A prefix whose completion is forbidden may still become an allowed sequence; it
                # comes after all those whose completion is allowed.
                standing = np.where(allowed, seen.scores(rank), np.inf)
                prefixes = prefixes[self._kept(standing, parents)]
        effort = SearchCost(token_forwards=int(energies.tokens[0]), leaves=int(energies.leaves[0]))
        return best.plans(space.problem, field.horizon, effort, exact=exact)

    def _kept(self, scores: NDArray[np.float64], parents: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the best prefixes, in their order."""
        if self.diversity:
            # by parent and score; a prefix's place in its family is the number of better siblings
            order = np.lexsort((scores, parents))
            family = np.searchsorted(parents[order], parents[order])
            scores = scores.copy()
            scores[order] += self.diversity * (np.arange(len(order)) - family)
        return np.sort(scores.argsort(kind="stable")[: self.width])


class _Seen:
    """Scores of evaluated sequences by rank."""

    def __init__(self) -> None:
        self._score: dict[int, float] = {}

    def add(self, ranks: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        self._score.update(zip(ranks.tolist(), scores.tolist(), strict=True))

    def has(self, ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([rank in self._score for rank in ranks.tolist()], dtype=np.bool_)

    def scores(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._score.get(rank, np.inf) for rank in ranks.tolist()])


def _within(space: Space) -> StepCosts:
    """The guide, made infinite where the objective's chain is."""
    chain = space.objective.chain
    if space.free or chain is None:
        return space.guide
    return space.guide + StepCosts(
        costs=tuple(np.where(np.isinf(cost), np.inf, 0.0) for cost in chain.costs)
    )
