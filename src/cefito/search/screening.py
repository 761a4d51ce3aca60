"""Evaluation of full sequences: any set of them, the best of a walk, and screening.

Screening evaluates all sequences in lower precision, and the possible best again in full. Lower
precision only decides which sequences cannot be among the best, by a margin: `SAFETY` times the
largest error seen, on the sequences that look best and on a sample of all others. The margin is
widened, and more sequences are evaluated again, until no error exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import (
    Component,
    IncrementalEnergies,
    Screening,
    Searchable,
    SingleComponent,
    Watch,
    components_of,
    empty_prefixes,
    observations,
    to_device,
    working_bytes,
)
from cefito.search.problem import Best, Plans, SearchCost, Space, places

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "KEPT",
    "LEAST",
    "ResultHeap",
    "Screened",
    "SequenceEnergies",
    "batch_size",
    "coarse_of",
    "rescore",
    "sample_size",
    "screens",
]

Ids = NDArray[np.int64]


@dataclass
class _Cache:
    """Prefixes that a component computed."""

    prefixes: Any
    numbers: dict[bytes, int] = field(default_factory=dict)  # of each query and prefix, among these


class SequenceEnergies:
    """Evaluates sequences of several queries together.

    With `keep`, prefixes are kept for later sequences, within half of the memory bound.
    """

    # tokens, leaves: token forwards and sequences of each query so far [Q]; listed: token forwards
    # if no prefix had been kept

    def __init__(
        self, field: Searchable, spaces: Sequence[Space], memory_mib: float, *, keep: bool = False
    ) -> None:
        self.components, self.spaces = components_of(field), spaces
        self.memory_mib = memory_mib / 2 if keep else memory_mib
        self._most = self.memory_mib * 2**20 / len(self.components) if keep else 0.0
        self._caches: dict[int, _Cache] = {}  # of each component, by its id()
        self.tokens = np.zeros(len(spaces), dtype=np.int64)
        self.listed = self.tokens.copy()
        self.leaves = np.zeros(len(spaces), dtype=np.int64)

    def __call__(
        self, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the energies [M] of sequences of places [M, T] of the given queries [M].

        NaN counts as infinite.
        """
        energies = np.zeros(len(query))
        for component in self.components:  # E(a) is the sum of their energies
            for rows, values in self.walk(component, query, sequences):
                energies[rows] += values
        np.add.at(self.leaves, query, 1)
        return np.where(np.isfinite(energies), energies, np.inf)

    def of(self, query: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the energies of sequences of one query [M, T]."""
        return self(np.full(len(sequences), query), sequences)

    def walk(
        self, component: Component, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the rows of each batch and their energies by one component alone."""
        # query [M], sequences of places [M, T]
        if component.reversed:
            sequences = sequences[:, ::-1]
        most = batch_size(component.energies, self.memory_mib)
        order = np.lexsort((*sequences.T[::-1], query))
        for first in range(0, len(order), most):
            rows = order[first : first + most]
            yield rows, self._walk(component, query[rows], sequences[rows])

    def _cache(self, component: Component) -> _Cache:
        """Return the prefixes that were computed, the empty ones alone if others take too much."""
        cache = self._caches.get(id(component))
        if cache is None:
            ends = observations(self.spaces, component.energies.device)
            cache = self._caches[id(component)] = _Cache(empty_prefixes(component, *ends))
            self.tokens += 1
            self.listed += 1
        elif cache.prefixes.kept_bytes > self._most:
            cache.prefixes.clear()
            cache.numbers.clear()
        return cache

    def _walk(
        self, component: Component, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the energies of sequences sorted by query, then by actions as they are read."""
        field, cache = component.energies, self._cache(component)
        # A node is a run of sequences that share a prefix of some length. `new` [M] marks where the
        # nodes of a level begin, `parent` [M] is the number of each sequence's prefix.
        new = np.r_[True, query[1:] != query[:-1]]
        parent, levels = query, []
        for depth in range(field.horizon - 1):
            new[1:] |= sequences[1:, depth] != sequences[:-1, depth]
            nodes = np.flatnonzero(new)
            np.add.at(self.listed, query[nodes], 2)
            rows = np.column_stack([query[nodes], sequences[nodes, : depth + 1]])
            keys = [row.tobytes() for row in rows]
            missing = nodes[[key not in cache.numbers for key in keys]]
            levels.append(self._children(query, sequences[:, depth], parent, missing, field.device))
            np.add.at(self.tokens, query[missing], 2)
            # numbers of empty prefixes are those of their queries
            count = len(self.spaces)
            numbers = [cache.numbers.setdefault(key, count + len(cache.numbers)) for key in keys]
            parent = np.array(numbers)[np.cumsum(new) - 1]
        everything = np.arange(len(query))
        np.add.at(self.tokens, query, 2)
        np.add.at(self.listed, query, 2)
        levels.append(self._children(query, sequences[:, -1], parent, everything, field.device))
        values: NDArray[np.float32] = (
            field.sequence_energies(cache.prefixes, levels).float().cpu().numpy()
        )
        return values

    def _children(
        self, query: Ids, step: Ids, parent: Ids, rows: Ids, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return the parents and action ids of the children in these rows."""
        chosen = zip(query[rows].tolist(), step[rows].tolist(), strict=True)
        ids = [self.spaces[one].problem.actions[place] for one, place in chosen]
        actions = np.array(ids, dtype=np.int64)
        return to_device(parent[rows], device), to_device(actions, device)


def batch_size(field: IncrementalEnergies[Any], memory_mib: float) -> int:
    """Return how many sequences fit the memory bound, if none shares a prefix with another."""
    last = field.horizon - 1
    each = sum(
        field.bytes_per_child(depth, leaf=depth == last, each=True) for depth in range(last + 1)
    )
    return max(1, working_bytes(field.device, memory_mib) // each)


class ResultHeap:
    """Leaves met by a walk of some queries that allow the same actions."""

    # samples: leaves kept at regular distances, whatever their score; count: leaves met [Q]

    def __init__(
        self, spaces: Sequence[Space], top_k: int, watch: Watch, *, sampled: int = 0
    ) -> None:
        self.spaces, self.watch = spaces, watch
        self.size, self.horizon = spaces[0].size, spaces[0].horizon
        self.best = [Best(top_k) for _ in spaces]
        self.samples = [Best(2 * sampled + 1) for _ in spaces]
        self.count = np.zeros(len(spaces), dtype=np.int64)
        self._stride = max(1, self.size**self.horizon // sampled) if sampled else 0

    def add(
        self, energies: NDArray[np.float32], query: Ids, rank: Ids, *, share: float = 1.0
    ) -> None:
        """Add leaves of distinct ranks; those of a query are adjacent."""
        # energies, queries ascending and ranks, each [n]; share of their work not reported yet
        for one in np.unique(query):
            first, behind = np.searchsorted(query, [one, one + 1])
            space, part, ranks = self.spaces[one], energies[first:behind], rank[first:behind]
            scores = None if space.objective.pure else space.scores(part, self.sequences(ranks))
            self.best[one].add(part, ranks, scores)
            if self._stride:
                chosen = ranks % self._stride == 0
                sampled = None if scores is None else scores[chosen]
                self.samples[one].add(part[chosen], ranks[chosen], sampled)
            self.count[one] += behind - first
            self.advance(behind - first, share)

    def advance(self, leaves: int, share: float) -> None:
        """Report a share of the work on some leaves as done."""
        self.watch.advance(share * leaves / self.size**self.horizon)

    def sequences(self, ranks: Ids) -> Ids:
        """Return the sequences of places [n, T] of ranks [n]."""
        return places(ranks, self.size, self.horizon)

    def finish(self) -> None:
        """Report the leaves that constraints saved as done."""
        saved = len(self.spaces) - float(self.count.sum()) / self.size**self.horizon
        self.watch.advance(saved)

    def plans(self, tokens: Ids, *, exact: bool) -> list[Plans]:
        """Return the plans of each query, given the token forwards [Q] that it cost."""
        return [
            best.plans(space.problem, self.horizon, SearchCost(int(spent), int(count)), exact=exact)
            for best, space, spent, count in zip(
                self.best, self.spaces, tokens, self.count, strict=True
            )
        ]


KEPT = 4096
"""Leaves of lowest coarse score that are kept for evaluation in full precision."""
SAFETY = 3.0
"""Margin over the largest error seen."""
LEAST = 256
"""Fewest sequences for which screening may pay: some hundred are evaluated twice."""
_FIRST = 12  # sequences of lowest coarse score that are evaluated again whatever the margin


def sample_size(leaves: int) -> int:
    """Return how many other leaves are evaluated twice, to see the error of lower precision.

    One of sixty-four, which costs little; at least 16, at most 64.
    """
    return max(16, min(64, leaves // 64))


def screens(screening: Screening, field: Searchable, sequences: int) -> bool:
    """Whether a search of about so many sequences screens; "auto" if that is faster."""
    if screening == "auto":
        faster = all(component.energies.coarse_pays for component in components_of(field))
        return faster and sequences >= LEAST
    return screening == "on"


def coarse_of(field: Searchable) -> Searchable:
    """Return the same field in lower precision."""
    components = components_of(field)
    if components[0].energies is field:  # its own only component
        return components[0].energies.coarse()
    coarse = (SingleComponent(one.energies.coarse(), one.reversed) for one in components)
    return _CoarseComposite(field, tuple(coarse))


@dataclass(frozen=True)
class _CoarseComposite:
    """A composite field, each component in lower precision."""

    field: Searchable
    coarse: tuple[Component, ...]

    @property
    def horizon(self) -> int:
        return self.field.horizon

    @property
    def device(self) -> torch.device:
        return self.field.device

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        return self.field.energy(initial, goal, actions)

    def components(self) -> Sequence[Component]:
        return self.coarse


class Screened:
    """Sequences of one query evaluated in lower precision; decides which to evaluate again."""

    def __init__(
        self, space: Space, rough: Best, sample: Best, top_k: int, *, all_kept: bool
    ) -> None:
        self.space, self.top_k, self.all_kept = space, top_k, all_kept
        self._kept = len(rough)
        self._ranks = np.concatenate([rough.ranks, sample.ranks])  # all arrays: [kept + sampled]
        self._coarse = np.concatenate([rough.scores, sample.scores])
        self._known = np.zeros(len(self._ranks), dtype=np.bool_)  # in full precision
        self._fine = np.full(len(self._ranks), np.inf)
        self._energy = self._fine.copy()
        wanted = np.zeros(len(self._ranks), dtype=np.bool_)
        wanted[: max(top_k, _FIRST)] = wanted[len(rough) :] = True
        self._bound = np.inf
        self._next = np.flatnonzero(wanted)

    def wanted(self) -> NDArray[np.int64]:
        """Return the sequences to evaluate next in full precision [M, T]; none once decided."""
        return places(self._ranks[self._next], self.space.size, self.space.horizon)

    def learn(self, energies: NDArray[np.float64]) -> None:
        """Add the energies of the wanted sequences, in full precision."""
        new = self._next
        self._energy[new] = energies
        scores = self.space.scores(energies, self.wanted())
        self._fine[new] = energies if scores is None else scores
        self._known[new] = True
        # margin = SAFETY · max |fine − coarse| over the sequences evaluated in both precisions
        both = self._known & np.isfinite(self._fine) & np.isfinite(self._coarse)
        errors = np.abs(self._fine[both] - self._coarse[both])
        margin = SAFETY * float(errors.max(initial=0.0))
        # Sequences whose coarse score exceeds the k-th best fine score by the margin cannot win.
        kept, last = self._fine[: self._kept], min(self.top_k, self._kept) - 1
        self._bound = float(np.partition(kept, last)[last]) + margin
        self._next = np.flatnonzero(~self._known & (self._coarse <= self._bound))

    @property
    def complete(self) -> bool:
        """Whether no other sequence can be among the best, as far as the margin holds."""
        last = float(self._coarse[self._kept - 1]) if self._kept else np.inf
        return self.all_kept or last > self._bound

    def best(self) -> Best:
        """Return the best sequences by full precision."""
        best = Best(self.top_k)
        _, first = np.unique(self._ranks[self._known], return_index=True)
        energy, ranks, fine = (
            values[self._known][first] for values in (self._energy, self._ranks, self._fine)
        )
        best.add(energy, ranks, fine)
        return best


def rescore(screened: Sequence[Screened], energies: SequenceEnergies) -> None:
    """Evaluate the sequences that may be the best again, for all queries together."""
    while True:
        wanted = [query.wanted() for query in screened]
        counts = [len(sequences) for sequences in wanted]
        if not sum(counts):
            return
        values = energies(np.repeat(np.arange(len(counts)), counts), np.concatenate(wanted))
        for query, count, share in zip(
            screened, counts, np.split(values, np.cumsum(counts)[:-1]), strict=True
        ):
            if count:
                query.learn(share)
