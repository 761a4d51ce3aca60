"""Guided search: the likeliest sequences, re-scored by the field and improved by local changes.

1. The K cheapest sequences under the problem's guide (a prior over sequences, step logits, their
   sum), exactly; sequences spread over the enumeration where there is no guide.
2. From each of the S best: every sequence that differs in one step or by a swap of two steps, until
   all neighbours of the S best are known.
3. The neighbours of the best tell, to first order, what the energy of any combination of changes
   would be: the P sequences that are best under that estimate plus the exact chain are evaluated
   next, which covers changes of two and more steps.
4. Again from 2, until nothing new is wanted: nothing near is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.component import Searchable
from cefito.search.problem import Best, Plans, Problem, SearchCost, Watch, places
from cefito.search.problem import ranks as ranks_of
from cefito.search.screening import Screened, Screening, coarse_of, rescore, screens
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled
from cefito.search.step_costs import StepCosts

__all__ = ["GuidedSearch"]

_SAMPLED = 12  # sequences besides the best that show the error of lower precision
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
        screening: Whether lower precision leads the search; "auto" where that is quicker. What may
            be among the best of all that it met is evaluated again, and full precision decides.

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
        screening: Screening = "off",
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
                f"refinements, {rounds} rounds, {budget_gflop} GFLOP and {memory_mib} MiB; "
                "expected at least 1, 1, 0 and 0, the others positive."
            )
        self.proposals, self.starts = proposals, starts
        self.refinements, self.rounds = refinements, rounds
        self.budget_gflop, self.memory_mib = budget_gflop, memory_mib
        self.screening: Screening = screening

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`; exact where all allowed were evaluated.

        At least `top_k` sequences are taken from the guide, however few proposals are set.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)
        answers: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            answers += self._together(field, spaces[first : first + _TOGETHER], top_k, watch)
        return answers

    def _together(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        screening = screens(self.screening, field, self.proposals)
        led_by = coarse_of(field) if screening else field
        energies = SequenceEnergies(led_by, spaces, self.memory_mib)
        parts = energies.parts
        # token forwards a query, of each part
        budget = self.budget_gflop * 1e9 / sum(part.energies.flops_per_token for part in parts)
        # A quarter of the budget for the proposals, each of which costs at most 2T token forwards.
        affordable = max(1, int(min(self.proposals, budget / (8 * field.horizon))))
        climbs = [_Climb(space, self, max(affordable, top_k), budget) for space in spaces]
        active = list(range(len(climbs)))
        while active:
            wanted = [climbs[index].wanted() for index in active]
            query = np.repeat(active, [len(part) for part in wanted])
            if len(query):
                values = energies(query, np.concatenate(wanted))
                shares = np.split(values, np.cumsum([len(part) for part in wanted])[:-1])
                for index, share in zip(active, shares, strict=True):
                    climbs[index].learn(share, int(energies.tokens[index]) // len(parts))
            if watch.stop():
                break
            still = [index for index in active if not climbs[index].done]
            watch.advance(len(active) - len(still))
            active = still
        best, tokens = [climb.best(top_k) for climb in climbs], energies.tokens
        if screening:
            again = SequenceEnergies(field, spaces, self.memory_mib)
            screened = [climb.screened(top_k) for climb in climbs]
            rescore(screened, again)
            best, tokens = [query.best() for query in screened], tokens + again.tokens
        return [
            one.plans(
                climb.space.problem,
                field.horizon,
                SearchCost(int(spent), int(leaves)),
                exact=climb.exact,
            )
            for climb, one, spent, leaves in zip(climbs, best, tokens, energies.leaves, strict=True)
        ]


class _Climb:
    """The state of one query's search: what was evaluated, and what is wanted next."""

    def __init__(self, space: Space, settings: GuidedSearch, proposals: int, budget: float) -> None:
        self.space, self.settings, self.budget = space, settings, budget
        self.rounds_left = settings.rounds
        # token forwards of all neighbours of a sequence: each step's other actions and what follows
        # them
        self.around = space.size * space.horizon * (space.horizon + 1)
        self.energy: dict[int, float] = {}  # of every sequence evaluated, by rank
        self.score: dict[int, float] = {}
        self.surrounded: set[int] = set()  # ranks whose neighbours were evaluated
        self.combined: set[int] = set()  # ranks whose changes were combined
        self.done = False
        self._propose(proposals)

    def _propose(self, proposals: int) -> None:
        """Begin with the guide's cheapest sequences."""
        space = self.space
        guide, allowed = (
            space.guide,
            space.objective.chain or StepCosts.free(space.horizon, space.size),
        )
        cheapest = space.cheapest(guide, proposals)
        if not len(cheapest.costs):  # the guide forbids all that is allowed: go by the costs alone
            guide, cheapest = allowed, space.cheapest(allowed, proposals)
        # Are these all there are? Only if the guide itself forbids nothing that is allowed.
        whole = guide is allowed or guide.finite
        self.everything = whole and cheapest.complete and cheapest.bound == np.inf
        self.pending = cheapest.sequences
        # A guide under which all cost the same gives the first sequences by ids, which are much
        # alike; spread out they see more of the field.
        if not self.everything and all((cost == cost.flat[0]).all() for cost in guide.tables()):
            self.pending = _spread(space, cheapest.sequences)

    def wanted(self) -> NDArray[np.int64]:
        """Sequences to evaluate next [M, T], none of them evaluated before."""
        return self.pending

    def learn(self, energies: NDArray[np.float64], spent: int) -> None:
        """Take in the energies of what was wanted and decide what comes next.

        Args:
            energies: Energies [M].
            spent: Token forwards that each part has spent on this query so far.
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
        """Sequences to evaluate next, none where the climb has ended.

        Args:
            left: Token forwards that may still be spent.
        """
        wanted = self.pending[:0]
        if self.everything or not self.settings.refinements or left < self.around / 2:
            return wanted
        # What a round asks for may all be known already; then the next round begins at once.
        while not len(wanted) and self.rounds_left:
            best = nsmallest(self.settings.starts, self.score, key=self._standing)
            # Neighbours of the best come first, of all starts at once so that the network sees
            # large batches. One round takes at most a quarter of what is left, so that it can be
            # spent on better starts if the neighbours turn out better.
            starts = [rank for rank in best if rank not in self.surrounded]
            starts = starts[: max(1, int(left / self.around / 4))]
            if starts:
                self.surrounded.update(starts)
                wanted = np.concatenate(
                    [_neighbours(self._sequence(rank), self.space.size) for rank in starts]
                )
            # With all single changes of the best known, their sums estimate what several changes
            # at once would give: a way out of a local optimum.
            elif best[0] not in self.combined:
                self.combined.add(best[0])
                estimate = self._estimate(best[0])
                wanted = self.space.cheapest(estimate, self.settings.refinements).sequences
            else:
                break
            self.rounds_left -= 1
            wanted = self._unseen(wanted)
        return wanted

    def _standing(self, rank: int) -> tuple[float, int]:
        return self.score[rank], rank

    def _sequence(self, rank: int) -> NDArray[np.int64]:
        (sequence,) = places(np.array([rank]), self.space.size, self.space.horizon)
        return np.asarray(sequence)

    def _unseen(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The allowed ones that were not evaluated before, each once, in the order of ids."""
        ranks, first = np.unique(ranks_of(sequences, self.space.size), return_index=True)
        sequences = sequences[first[[rank not in self.energy for rank in ranks.tolist()]]]
        return sequences if self.space.free else sequences[self.space.allows(sequences)]

    def _estimate(self, rank: int) -> StepCosts:
        """The objective, with energies estimated to first order from single changes of a sequence.

        The energy of several changes is taken to differ from the sequence's by the sum of what each
        change alone does. Such an estimate is a chain, whose cheapest sequences are found exactly.
        """
        size, horizon, sequence = self.space.size, self.space.horizon, self._sequence(rank)
        costs = []
        for step in range(horizon):
            power = size ** (horizon - 1 - step)
            changed = [
                self.energy.get(rank + (place - int(sequence[step])) * power)
                for place in range(size)
            ]
            # A change that is not allowed by itself was not evaluated, but may be allowed together
            # with others. It is thought to be as bad as the worst that was.
            worst = max(energy for energy in changed if energy is not None)
            energies = np.array([worst if energy is None else energy for energy in changed])
            # infinite where the field diverged, and ∞ − ∞ is no cost
            base = min(self.energy[rank], np.finfo(np.float64).max)
            costs.append((energies - base) / self.space.objective.temperature)
        estimate, chain = StepCosts(costs=tuple(costs)), self.space.objective.chain
        return estimate if chain is None else estimate + chain

    @property
    def exact(self) -> bool:
        """Whether all allowed sequences were evaluated."""
        whole = self.space.free and len(self.energy) == self.space.size**self.space.horizon
        return whole or (self.everything and bool(self.energy))

    def best(self, top_k: int) -> Best:
        """The best sequences evaluated."""
        best = Best(top_k)
        ranks = torch.tensor(list(self.energy), dtype=torch.int64)
        energies, scores = (
            torch.tensor(list(values.values()), dtype=torch.float64)
            for values in (self.energy, self.score)
        )
        best.add(energies, ranks, scores)
        return best

    def screened(self, top_k: int) -> Screened:
        """All sequences evaluated, to be looked at again in full precision."""
        rough = self.best(len(self.energy))
        sample = Best(_SAMPLED)
        chosen = slice(None, None, max(1, -(-len(rough) // _SAMPLED)))
        sample.add(rough.energies[chosen], rough.ranks[chosen], rough.scores[chosen])
        return Screened(self.space, rough, sample, top_k, all_kept=True)


def _spread(space: Space, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """As many allowed sequences as are given, spread evenly over the enumeration.

    Where too few of those are allowed, the given ones fill up.
    """
    # the multiples of the golden ratio modulo one leave no gap for long (Weyl's sequence)
    golden = (np.sqrt(5) - 1) / 2
    ranks = (np.arange(1, len(first) + 1) * golden % 1 * space.size**space.horizon).astype(np.int64)
    sequences = places(ranks, space.size, space.horizon)
    both = np.concatenate([sequences[space.allows(sequences)], first])
    _, kept = np.unique(ranks_of(both, space.size), return_index=True)
    return both[np.sort(kept)[: len(first)]]


def _neighbours(sequence: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """All sequences [M, T] that differ from a sequence [T] in one step or by a swap of two."""
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
