"""Guided search: the likeliest sequences, re-scored by the field.

Then improved until nothing near is better.

1. The K cheapest sequences under the problem's guide (a prior over sequences, step logits, their
   sum), exactly; sequences spread over the enumeration where there is no guide.
2. From each of the S best: every sequence that differs in one step or by a swap of two steps, until
   all neighbours of the S best are known.
3. The neighbours of the best tell, to first order, what the energy of any combination of changes
   would be: the P sequences that are best under that estimate plus the exact chain are evaluated
   next, which covers changes of two and more steps.
4. Again from 2, until nothing new is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
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
        starts: S, best sequences whose neighbours are evaluated.
        refinements: P, combinations of changes evaluated a round; 0 leaves the proposals unrefined.
        rounds: Most rounds of refinement.
        budget_gflop: Operations a query, in 10⁹, after which nothing more is refined; a quarter
            bounds the proposals.
        memory_mib: Bound on the memory of the prefixes computed at once, in MiB.

    Raises:
        ConfigError: A setting out of range.
    """

    def __init__(
        self,
        *,
        proposals: int = 512,
        starts: int = 12,
        refinements: int = 256,
        rounds: int = 100,
        budget_gflop: float = 35,
        memory_mib: float = 1024,
    ) -> None:
        if (
            proposals < 1
            or starts < 1
            or refinements < 0
            or rounds < 0
            or not budget_gflop > 0
            or not memory_mib > 0
        ):
            raise ConfigError(
                f"guided search with {proposals} proposals, {starts} starts, {refinements} "
                f"refinements, {rounds} "
                f"rounds, {budget_gflop} GFLOP and {memory_mib} MiB; expected at least 1, 1, 0 "
                "and 0, the "
                "others positive."
            )
        self.proposals, self.starts, self.refinements, self.rounds = (
            proposals,
            starts,
            refinements,
            rounds,
        )
        self.budget_gflop, self.memory_mib = budget_gflop, memory_mib

    def search(
        self,
        field: IncrementalEnergies[Any],
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`.

        Exact where all allowed ones were evaluated.

        At least `top_k` sequences are taken from the guide, however few proposals are set.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)
        found: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            found += self._together(field, spaces[first : first + _TOGETHER], top_k, watch)
        return found

    def _together(
        self, field: IncrementalEnergies[Any], spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        energies = SequenceEnergies(field, spaces, self.memory_mib)
        parts = energies.parts
        # token forwards a query, of each part
        budget = self.budget_gflop * 1e9 / sum(part.energies.flops_per_token for part in parts)
        few = max(
            1, int(min(self.proposals, budget / (8 * field.horizon)))
        )  # a proposal costs at most 2T of them
        climbs = [_Climb(space, self, max(few, top_k), budget) for space in spaces]
        active = list(range(len(climbs)))
        while active:
            wanted = [climbs[index].wanted() for index in active]
            query = np.repeat(active, [len(part) for part in wanted])
            if len(query):
                values = energies(query, np.concatenate(wanted))
                for index, part in zip(
                    active,
                    np.split(values, np.cumsum([len(part) for part in wanted])[:-1]),
                    strict=True,
                ):
                    climbs[index].learn(part, int(energies.tokens[index]) // len(parts))
            if watch.stop():
                break
            still = [index for index in active if not climbs[index].done]
            watch.advance(len(active) - len(still))
            active = still
        return [
            climb.plans(top_k, Effort(int(tokens), int(leaves)))
            for climb, tokens, leaves in zip(climbs, energies.tokens, energies.leaves, strict=True)
        ]


class _Climb:
    """The state of one query's search: what was evaluated, and what is wanted next."""

    def __init__(self, space: Space, settings: GuidedSearch, proposals: int, budget: float) -> None:
        self.space, self.settings, self.rounds, self.budget = (
            space,
            settings,
            settings.rounds,
            budget,
        )
        # token forwards of all neighbours of a sequence: each step's other actions and what follows
        # them
        self.around = space.size * space.horizon * (space.horizon + 1)
        self.energy: dict[int, float] = {}  # by rank
        self.score: dict[int, float] = {}
        guide, allowed = space.guide, space.objective.chain or Chain.free(space.horizon, space.size)
        cheapest = space.cheapest(guide, proposals)
        if not len(cheapest.costs):  # the guide forbids all that is allowed
            guide, cheapest = allowed, space.cheapest(allowed, proposals)
        whole = guide is allowed or all(np.isfinite(cost).all() for cost in guide.costs)
        self.everything = whole and cheapest.complete and cheapest.bound == np.inf
        self.pending = cheapest.sequences
        if not self.everything and all((cost == cost.flat[0]).all() for cost in guide.costs):
            self.pending = _spread(
                space, cheapest.sequences
            )  # no guide: the first in order say little
        self.surrounded: set[int] = set()  # ranks whose neighbours were evaluated
        self.combined: set[int] = set()  # ranks whose changes were combined
        self.done = False

    def wanted(self) -> NDArray[np.int64]:
        """Sequences to evaluate next [M, T], none of them evaluated before."""
        return self.pending

    def learn(self, energies: NDArray[np.float64], spent: int) -> None:
        """Take in their energies and decide what comes next.

        Given the token forwards that each part has spent so far.
        """
        ranks = ranks_of(self.pending, self.space.size).tolist()
        scores = self.space.scores(torch.from_numpy(energies), self.pending)
        self.energy.update(zip(ranks, energies.tolist(), strict=True))
        self.score.update(
            zip(ranks, energies.tolist() if scores is None else scores.tolist(), strict=True)
        )
        self.pending = self._next(self.budget - spent)
        self.done = not len(self.pending)

    def _next(self, left: float) -> NDArray[np.int64]:
        wanted = self.pending[:0]
        if left < self.around / 2:
            return wanted
        while not (self.everything or len(wanted)) and self.settings.refinements and self.rounds:
            best = nsmallest(self.settings.starts, self.score, key=self._standing)
            new = [rank for rank in best if rank not in self.surrounded][
                : max(1, int(left / self.around / 4))
            ]
            if new:
                self.surrounded.update(new)
                wanted = np.concatenate(
                    [_neighbours(self._sequence(rank), self.space.size) for rank in new]
                )
            elif best[0] not in self.combined:
                self.combined.add(best[0])
                wanted = self.space.cheapest(
                    self._estimate(best[0]), self.settings.refinements
                ).sequences
            else:
                break
            self.rounds -= 1
            wanted = self._unseen(wanted)
        return wanted

    def _standing(self, rank: int) -> tuple[float, int]:
        return self.score[rank], rank

    def _sequence(self, rank: int) -> NDArray[np.int64]:
        sequence: NDArray[np.int64] = places(np.array([rank]), self.space.size, self.space.horizon)[
            0
        ]
        return sequence

    def _unseen(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        ranks, first = np.unique(ranks_of(sequences, self.space.size), return_index=True)
        sequences = sequences[first[[rank not in self.energy for rank in ranks.tolist()]]]
        return sequences if self.space.free else sequences[self.space.allows(sequences)]

    def _estimate(self, rank: int) -> Chain:
        """The objective with energies estimated from single changes of one sequence."""
        size, horizon, sequence = self.space.size, self.space.horizon, self._sequence(rank)
        costs = []
        for step in range(horizon):
            power = size ** (horizon - 1 - step)
            others = [
                self.energy.get(rank + (place - int(sequence[step])) * power)
                for place in range(size)
            ]
            worst = max(
                one for one in others if one is not None
            )  # a change not allowed by itself may be in company
            energies = np.array([worst if one is None else one for one in others])
            base = min(
                self.energy[rank], np.finfo(np.float64).max
            )  # infinite where the field diverged
            costs.append((energies - base) / self.space.objective.temperature)
        estimate = Chain(costs=tuple(costs))
        return (
            estimate
            if self.space.objective.chain is None
            else estimate + self.space.objective.chain
        )

    def _exact(self) -> bool:
        whole = self.space.free and len(self.energy) == self.space.size**self.space.horizon
        return whole or (self.everything and bool(self.energy))

    def plans(self, top_k: int, effort: Effort) -> Plans:
        """The best sequences evaluated."""
        best = Best(top_k)
        ranks = torch.tensor(list(self.energy), dtype=torch.int64)
        energies, scores = (
            torch.tensor(list(values.values()), dtype=torch.float64)
            for values in (self.energy, self.score)
        )
        best.add(energies, ranks, scores)
        return best.plans(self.space.problem, self.space.horizon, effort, exact=self._exact())


def _spread(space: Space, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """As many allowed sequences as are given, spread evenly over the enumeration.

    Filled up with those given.
    """
    golden = (
        np.sqrt(5) - 1
    ) / 2  # its multiples modulo one leave no gap for long (Weyl's sequence)
    ranks = (np.arange(1, len(first) + 1) * golden % 1 * space.size**space.horizon).astype(np.int64)
    sequences = places(ranks, space.size, space.horizon)
    both = np.concatenate([sequences[space.allows(sequences)], first])
    _, kept = np.unique(ranks_of(both, space.size), return_index=True)
    return both[np.sort(kept)[: len(first)]]


def _neighbours(sequence: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """All sequences that differ from one [T] in one step, or by a swap of two steps, [M, T]."""
    horizon = len(sequence)
    changed = np.repeat(sequence[None], horizon * size, axis=0)
    changed[np.arange(horizon * size), np.repeat(np.arange(horizon), size)] = np.tile(
        np.arange(size), horizon
    )
    swaps = [
        np.r_[sequence[:i], sequence[j], sequence[i + 1 : j], sequence[i], sequence[j + 1 :]]
        for i, j in combinations(range(horizon), 2)
    ]
    return np.unique(
        np.concatenate([changed, np.array(swaps, dtype=np.int64).reshape(-1, horizon)]), axis=0
    )
