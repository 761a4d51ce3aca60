"""Guided search: the likeliest sequences, re-scored by the field, then improved until nothing near is better.

1. The K cheapest sequences under the problem's guide (a prior over sequences, step logits, their sum), exactly.
2. From the best: every sequence that differs in one step or by a swap of two steps.
3. Those differences tell, to first order, what the energy of any combination of changes would be: the P sequences that are best
   under that estimate plus the exact chain are evaluated next, which covers changes of two and more steps.
4. From the new best again, until it stays the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.chain import Chain
from cefito.search.problem import Best, Effort, IncrementalEnergies, Plans, Problem, Watch, places
from cefito.search.problem import ranks as ranks_of
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled

__all__ = ["GuidedSearch"]

_TOGETHER = 32  # queries that advance in step, so that the network sees large batches


class GuidedSearch:
    """Proposals by the guide, re-scoring by the field, local refinement.

    Args:
        proposals: K, sequences taken from the guide.
        refinements: P, combinations of changes evaluated a round; 0 leaves the proposals unrefined.
        rounds: Most rounds of refinement.
        memory_mib: Bound on the memory of the prefixes computed at once, in MiB.

    Raises:
        ConfigError: A setting out of range.
    """

    def __init__(self, *, proposals: int = 128, refinements: int = 64, rounds: int = 20, memory_mib: float = 1024) -> None:
        if proposals < 1 or refinements < 0 or rounds < 0 or not memory_mib > 0:
            raise ConfigError(f"guided search with {proposals} proposals, {refinements} refinements, {rounds} rounds and "
                              f"{memory_mib} MiB; expected at least 1, 0, 0 and more than 0.")
        self.proposals, self.refinements, self.rounds, self.memory_mib = proposals, refinements, rounds, memory_mib

    def search(self, field: IncrementalEnergies[Any], problems: Sequence[Problem], top_k: int, watch: Watch = Watch()
               ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`; exact where all allowed ones were evaluated.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)
        found: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            found += self._together(field, spaces[first:first + _TOGETHER], top_k, watch)
        return found

    def _together(self, field: IncrementalEnergies[Any], spaces: Sequence[Space], top_k: int, watch: Watch) -> list[Plans]:
        energies = SequenceEnergies(field, spaces, self.memory_mib)
        climbs = [_Climb(space, max(self.proposals, top_k), self.refinements, self.rounds) for space in spaces]
        active = list(range(len(climbs)))
        while active:
            wanted = [climbs[index].wanted() for index in active]
            query = np.repeat(active, [len(part) for part in wanted])
            if len(query):
                values = energies(query, np.concatenate(wanted))
                for index, part in zip(active, np.split(values, np.cumsum([len(part) for part in wanted])[:-1]), strict=True):
                    climbs[index].learn(part)
            if watch.stop():
                break
            still = [index for index in active if not climbs[index].done]
            watch.advance(len(active) - len(still))
            active = still
        return [climb.plans(top_k, Effort(int(tokens), int(leaves)))
                for climb, tokens, leaves in zip(climbs, energies.tokens, energies.leaves, strict=True)]


class _Climb:
    """The state of one query's search: what was evaluated, and what is wanted next."""

    def __init__(self, space: Space, proposals: int, refinements: int, rounds: int) -> None:
        self.space, self.refinements, self.rounds = space, refinements, rounds
        self.energy: dict[int, float] = {}  # by rank
        self.best_rank, self.best_score = -1, np.inf
        self.best: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        cheapest = space.cheapest(space.guide, proposals)
        self.everything = cheapest.complete and cheapest.bound == np.inf
        self.pending = cheapest.sequences
        self.neighbours_of, self.combined_from = -1, -1  # ranks from which the two kinds of refinement were made
        self.done = False

    def wanted(self) -> NDArray[np.int64]:
        """Sequences to evaluate next [M, T], none of them evaluated before."""
        return self.pending

    def learn(self, energies: NDArray[np.float64]) -> None:
        """Take in their energies and decide what comes next."""
        ranks = ranks_of(self.pending, self.space.size)
        self.energy.update(zip(ranks.tolist(), energies.tolist(), strict=True))
        scores = self._scores(energies, self.pending)
        for index in np.lexsort((ranks, scores))[:1]:
            if (scores[index], ranks[index]) < (self.best_score, self.best_rank) or self.best_rank < 0:
                self.best_rank, self.best_score, self.best = int(ranks[index]), float(scores[index]), self.pending[index]
        self.pending = self._next()
        self.done = not len(self.pending)

    def _scores(self, energies: NDArray[np.float64], sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        scores = self.space.scores(torch.from_numpy(energies), sequences)
        return energies if scores is None else np.asarray(scores.numpy())

    def _next(self) -> NDArray[np.int64]:
        nothing = self.pending[:0]
        if self.everything or not self.refinements:
            return nothing
        while True:
            if self.neighbours_of != self.best_rank:
                if not self.rounds:
                    return nothing
                self.rounds -= 1
                self.neighbours_of = self.best_rank
                wanted = self._unseen(_neighbours(self.best, self.space.size))
            elif self.combined_from != self.best_rank:
                self.combined_from = self.best_rank
                wanted = self._unseen(self.space.cheapest(self._estimate(), self.refinements).sequences)
            else:
                return nothing
            if len(wanted):
                return wanted

    def _unseen(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        ranks = ranks_of(sequences, self.space.size)
        _, first = np.unique(ranks, return_index=True)
        new = np.array([index for index in first.tolist() if int(ranks[index]) not in self.energy], dtype=np.int64)
        sequences = sequences[new]
        return sequences if self.space.free else sequences[self.space.allows(sequences)]

    def _estimate(self) -> Chain:
        """The objective with energies estimated from single changes of the best sequence."""
        size, horizon = self.space.size, self.space.horizon
        base, temperature = self.energy[self.best_rank], self.space.objective.temperature
        costs = []
        for step in range(horizon):
            power = size ** (horizon - 1 - step)
            others = [self.energy.get(self.best_rank + (place - int(self.best[step])) * power) for place in range(size)]
            known = [one for one in others if one is not None]
            worst = max(known)  # a change that is not allowed by itself may be in company
            costs.append((np.array([worst if one is None else one for one in others]) - base) / temperature)
        estimate = Chain(costs=tuple(costs))
        return estimate if self.space.objective.chain is None else estimate + self.space.objective.chain

    def plans(self, top_k: int, effort: Effort) -> Plans:
        """The best sequences evaluated."""
        best = Best(top_k)
        if self.energy:
            ranks = np.array(list(self.energy), dtype=np.int64)
            energies = np.array(list(self.energy.values()))
            scores = self._scores(energies, places(ranks, self.space.size, self.space.horizon))
            best.add(torch.from_numpy(energies), torch.from_numpy(ranks), torch.from_numpy(scores))
        exact = self.everything and bool(self.energy)
        return best.plans(self.space.problem, self.space.horizon, effort, exact=exact)


def _neighbours(sequence: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """All sequences that differ from one [T] in one step, or by a swap of two steps, [M, T]."""
    horizon = len(sequence)
    changed = np.repeat(sequence[None], horizon * size, axis=0)
    changed[np.arange(horizon * size), np.repeat(np.arange(horizon), size)] = np.tile(np.arange(size), horizon)
    swaps = [np.r_[sequence[:i], sequence[j], sequence[i + 1:j], sequence[i], sequence[j + 1:]]
             for i, j in combinations(range(horizon), 2)]
    return np.unique(np.concatenate([changed, np.array(swaps, dtype=np.int64).reshape(-1, horizon)]), axis=0)
