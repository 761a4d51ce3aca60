"""Guided search: the likeliest sequences, re-scored by the field and improved by local changes.

1. Evaluate the K cheapest sequences under the problem's guide (a prior over sequences, step logits,
   their sum), found exactly; without a guide, sequences spread over the enumeration.
2. From each of the S best, evaluate every sequence that differs in one step or by a swap of two
   steps, until all neighbours of the S best are known.
3. The neighbours of the best give a first-order estimate of the energy of any combination of
   changes: evaluate the P sequences that are best under that estimate plus the exact costs, which
   covers changes of two and more steps.
4. Repeat from 2, until nothing new is wanted: no neighbour is better.

"auto" is exhaustive search for problems that fit a budget, and guided search for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.search.base import (
    Search,
    Searchable,
    SpaceSize,
    Watch,
    components_of,
    operations,
    values_of,
)
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.problem import Best, Plans, Problems, SearchCost, Space, compiled, places
from cefito.search.problem import ranks as ranks_of
from cefito.search.screening import ScreeningSettings, kept, rescored, screened_bound
from cefito.search.sequences import SequenceEnergies
from cefito.search.step_costs import StepCosts

_TOGETHER = 32  # queries that advance in step, so that the network sees large batches


class GuidedSettings(ScreeningSettings):
    """Settings of "guided".

    Attributes:
        proposals: Of "guided": K, likeliest sequences that are re-scored.
        starts: Of "guided": S, best sequences whose neighbours are evaluated.
        refinements: Of "guided": P, combinations of changes evaluated a round; 0 for no refinement.
    """

    proposals: int = Field(512, ge=1)
    starts: int = Field(12, ge=1)
    refinements: int = Field(256, ge=0)


class GuidedSearch(GuidedSettings, Search):
    """Proposals by the guide, re-scoring by the field, local refinement.

    Exact if all allowed sequences were evaluated. With `screening`, bfloat16 leads the search.

    Attributes:
        rounds: Most rounds of refinement.
        budget_gflop: Operations a query, in 10⁹, after which nothing more is refined; a quarter
            bounds the proposals.
    """

    rounds: int = Field(100, ge=0)
    budget_gflop: float = Field(35, gt=0)

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the cost of the proposals, and of refinement until the budget is spent."""
        horizon, most = field.horizon, size.leaves
        proposals = max(self.proposals, top_k)
        tokens, leaves = 2 * horizon * proposals, proposals  # of one component
        if self.refinements:
            # The last round may exceed the budget: by the neighbours of one sequence (its single
            # changes and its swaps), or by the combinations of changes.
            changes, swaps = horizon * (horizon + 1) * size.actions, horizon**2 * (horizon - 1)
            last = max(changes + swaps, 2 * horizon * self.refinements)
            # a round spends a quarter of the rest on changes, and on as many starts' swaps
            factor = max(1.0, (1 + swaps / changes) / 4)
            tokens = max(tokens, int(factor * self._budget(field)) + 1 + last)
            leaves += tokens // 2  # a sequence that shares all its prefixes costs two tokens
        leaves = min(leaves, most)
        tokens = 1 + min(tokens, 2 * horizon * most)
        cost = SearchCost(len(components_of(field)) * tokens, leaves)
        return screened_bound(field, cost, top_k) if self.screens(field) else cost

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return good sequences of each problem, at most `top_k`; as many are proposed at least."""
        spaces = compiled(problems, field.horizon, top_k)
        answers: list[Plans] = []
        for first in range(0, len(spaces), _TOGETHER):
            batch = spaces[first : first + _TOGETHER]
            if not self.screens(field):
                answers += self._together(field, batch, top_k, watch, top_k)
                continue
            coarse = self._together(field.coarse, batch, top_k, watch, kept(top_k))
            both = zip(batch, coarse, strict=True)
            answers += [rescored(field, *pair, top_k, self.memory_mib) for pair in both]
        return answers

    def _budget(self, field: Searchable) -> float:
        """Return the token forwards of each component that the budget pays."""
        flops = sum(component.energies.flops_per_token for component in components_of(field))
        return self.budget_gflop * 1e9 / flops

    def _together(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch, kept: int
    ) -> list[Plans]:
        energies = SequenceEnergies(field, spaces, self.memory_mib, keep=True)
        budget = self._budget(field)
        # A quarter of the budget for the proposals, each of which costs at most 2T token forwards.
        affordable = max(1, int(min(self.proposals, budget / (8 * field.horizon))))
        climbs = [_Climb(space, self, max(affordable, top_k), budget) for space in spaces]
        active = list(range(len(climbs)))
        while active:
            wanted = [climbs[index].wanted for index in active]
            query = np.repeat(active, [len(sequences) for sequences in wanted])
            if len(query):
                values = energies(query, np.concatenate(wanted))
                shares = np.split(values, np.cumsum([len(sequences) for sequences in wanted])[:-1])
                for index, share in zip(active, shares, strict=True):
                    climbs[index].learn(
                        share, int(energies.listed[index]) // len(energies.components)
                    )
            if watch.stop():
                break
            still = [index for index in active if len(climbs[index].wanted)]
            watch.advance(len(active) - len(still))
            active = still
        return [
            climb.best(kept).plans(
                climb.space.problem,
                field.horizon,
                SearchCost(int(spent), int(leaves)),
                exact=climb.exact,
            )
            for climb, spent, leaves in zip(climbs, energies.tokens, energies.leaves, strict=True)
        ]


class _Climb:
    """The state of one query's search: what was evaluated, and what is wanted next."""

    def __init__(self, space: Space, settings: GuidedSearch, proposals: int, budget: float) -> None:
        self.space, self.settings, self.budget = space, settings, budget
        self.rounds_left = settings.rounds
        # token forwards of all single changes of a sequence: Σ_t A · 2 (T − t + 1) = A T (T + 1)
        self.around = space.size * space.horizon * (space.horizon + 1)
        self.energy: dict[int, float] = {}  # of every sequence evaluated, by rank
        self.score: dict[int, float] = {}
        self.surrounded: set[int] = set()  # ranks whose neighbours were evaluated
        self.combined: set[int] = set()  # ranks whose changes were combined
        self._propose(proposals)

    def _propose(self, proposals: int) -> None:
        """Begin with the guide's cheapest sequences."""
        space, guide = self.space, self.space.guide
        cheapest = space.cheapest(guide, proposals)
        self.everything = cheapest.complete and cheapest.bound == np.inf
        # sequences to evaluate next [M, T], none of them evaluated before
        self.wanted = cheapest.sequences
        # If all sequences cost the same, the guide's cheapest are the first by ids, which are much
        # alike; sequences that are spread out sample more of the field.
        if not self.everything and all((cost == cost.flat[0]).all() for cost in guide.tables()):
            self.wanted = _spread(space, cheapest.sequences)

    def learn(self, energies: NDArray[np.float64], spent: int) -> None:
        """Add the energies [M] of the wanted sequences and choose the next ones."""
        ranks = ranks_of(self.wanted, self.space.size).tolist()
        scores = self.space.scores(energies, self.wanted)
        self.energy.update(zip(ranks, energies.tolist(), strict=True))
        self.score.update(
            zip(ranks, energies.tolist() if scores is None else scores.tolist(), strict=True)
        )
        self.wanted = self._next(self.budget - spent)

    def _next(self, left: float) -> NDArray[np.int64]:
        """Return the sequences to evaluate next; none once the climb has ended."""
        wanted = self.wanted[:0]
        if self.everything or not self.settings.refinements or left < self.around / 2:
            return wanted
        # If all sequences of a round are known already, the next round begins at once.
        while not len(wanted) and self.rounds_left:
            best = nsmallest(
                self.settings.starts, self.score, key=lambda rank: (self.score[rank], rank)
            )
            # Neighbours of the best come first, of all starts at once so that the network computes
            # large batches. One round takes at most a quarter of what is left, which keeps some for
            # better starts among the neighbours.
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

    def _sequence(self, rank: int) -> NDArray[np.int64]:
        (sequence,) = places(np.array([rank]), self.space.size, self.space.horizon)
        return np.asarray(sequence)

    def _unseen(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the allowed sequences not evaluated before, each once, in the order of ids."""
        ranks, first = np.unique(ranks_of(sequences, self.space.size), return_index=True)
        sequences = sequences[first[[rank not in self.energy for rank in ranks.tolist()]]]
        return sequences if self.space.free else sequences[self.space.allows(sequences)]

    def _estimate(self, rank: int) -> StepCosts:
        """Return the objective with energies estimated to first order around a sequence a.

        E(b) ≈ E(a) + Σ_t [E(a with b_t at step t) − E(a)]. The estimate has the form of step costs,
        whose cheapest sequences are found exactly.
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
            # with others. It is taken to be as bad as the worst change that was evaluated.
            worst = max(energy for energy in changed if energy is not None)
            energies = np.array([worst if energy is None else energy for energy in changed])
            # finite even if the field diverged: ∞ − ∞ is not a cost
            base = min(self.energy[rank], np.finfo(np.float64).max)
            costs.append((energies - base) / self.space.objective.temperature)
        estimate, exact = StepCosts(costs=tuple(costs)), self.space.objective.costs
        return estimate if exact is None else estimate + exact

    @property
    def exact(self) -> bool:
        """Whether all allowed sequences were evaluated."""
        whole = self.space.free and len(self.energy) == self.space.size**self.space.horizon
        return whole or (self.everything and bool(self.energy))

    def best(self, top_k: int) -> Best:
        """Return the best sequences evaluated."""
        best = Best(top_k)
        ranks = np.array(list(self.energy), dtype=np.int64)
        energies, scores = (
            np.array(list(numbers.values())) for numbers in (self.energy, self.score)
        )
        best.add(energies, ranks, scores)
        return best


def _spread(space: Space, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return as many allowed sequences as given, spread evenly; the given ones fill up."""
    # multiples of the golden ratio modulo one are spread evenly (Weyl's sequence)
    golden = (np.sqrt(5) - 1) / 2
    ranks = (np.arange(1, len(first) + 1) * golden % 1 * space.size**space.horizon).astype(np.int64)
    sequences = places(ranks, space.size, space.horizon)
    both = np.concatenate([sequences[space.allows(sequences)], first])
    _, kept = np.unique(ranks_of(both, space.size), return_index=True)
    return both[np.sort(kept)[: len(first)]]


def _neighbours(sequence: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return all sequences [M, T] that differ from one [T] in one step or by a swap of two."""
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


class AutoSettings(GuidedSettings):
    """Settings of "auto".

    Attributes:
        budget_gflop: Of "auto": most operations that an exhaustive search may take, 10⁹; by default
            about two seconds on one processor core.
    """

    budget_gflop: float = Field(50, ge=0)


class AutoSearch(AutoSettings, Search):
    """Exhaustive search for problems that fit a budget of operations, guided for the others."""

    @property
    def exhaustive(self) -> ExhaustiveSearch:
        """The exact search."""
        return ExhaustiveSearch(**values_of(self, ScreeningSettings))

    @property
    def guided(self) -> GuidedSearch:
        """The search beyond the budget."""
        return GuidedSearch(**values_of(self, GuidedSettings))

    def affordable(self, field: Searchable, actions: int) -> bool:
        """Whether an exact search over the actions fits the budget without constraints."""
        whole = SpaceSize(actions, (actions,) * field.horizon, free=True)
        tokens = len(components_of(field)) * whole.tree_tokens
        return operations(field, SearchCost(tokens, whole.leaves)) <= self.budget_gflop * 1e9

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the bound of the search that it chooses."""
        search = self.exhaustive if self.affordable(field, size.actions) else self.guided
        return search.cost_bound(field, size, top_k)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the plans of each problem, in the order of the problems."""
        spaces = compiled(problems, field.horizon, top_k)  # refuses bad problems before any work
        fits = [self.affordable(field, space.size) for space in spaces]
        return searched_apart((self.exhaustive, self.guided), fits, field, spaces, top_k, watch)


def searched_apart(
    searches: tuple[Search, Search],
    fits: Sequence[bool],
    field: Searchable,
    problems: Problems,
    top_k: int,
    watch: Watch = Watch(),
) -> list[Plans]:
    """Return the plans of each problem, found by one of two searches.

    Args:
        searches: The two searches.
        fits: Whether each problem is one of the first search.
        field: Field that is searched.
        problems: Problems, compiled or not.
        top_k: Number of sequences of each.
        watch: Shows progress, and says when to stop.
    """
    answers: dict[int, Plans] = {}
    for search, first in zip(searches, (True, False), strict=True):
        rows = [row for row, fitting in enumerate(fits) if fitting == first]
        plans = search.search(field, [problems[row] for row in rows], top_k, watch)
        answers.update(zip(rows, plans, strict=True))
    return [answers[row] for row in range(len(problems))]
