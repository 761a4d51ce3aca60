"""Energies of any set of full sequences of several queries, which share their prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import (
    Component,
    IncrementalEnergies,
    Searchable,
    components_of,
    observations,
    to_device,
    working_bytes,
)
from cefito.search.problem import Space

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Ids = NDArray[np.int64]


@dataclass
class _Cache:
    """Prefixes that a component computed."""

    prefixes: Any
    count: int = 0  # of prefixes beside the empty ones
    numbers: dict[bytes, int] = field(default_factory=dict)  # of each query and prefix, among these


class SequenceEnergies:
    """Evaluates sequences of several queries together.

    With `keep`, prefixes are kept for later sequences, within half of the memory bound.

    Args:
        field: The field.
        spaces: Sequences of each query.
        memory_mib: Bound of the memory, MiB.
        keep: Whether prefixes are kept.
    """

    # tokens, leaves: token forwards and sequences of each query so far [Q]; listed: token forwards
    # if no prefix had been kept

    def __init__(
        self, field: Searchable, spaces: Sequence[Space], memory_mib: float, *, keep: bool = False
    ) -> None:
        self.components, self.spaces = components_of(field), spaces
        sizes = [len(space.problem.actions) for space in spaces]
        self.actions = np.zeros((len(spaces), max(sizes)), dtype=np.int64)  # ids by place [Q, A]
        for row, space in zip(self.actions, spaces, strict=True):
            row[: len(space.problem.actions)] = space.problem.actions
        self.keep, self.memory_mib = keep, memory_mib / 2 if keep else memory_mib
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
            for rows, values in self._batches(component, query, sequences):
                energies[rows] += values
        np.add.at(self.leaves, query, 1)
        return np.where(np.isfinite(energies), energies, np.inf)

    def of(self, query: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the energies of sequences of one query [M, T]."""
        return self(np.full(len(sequences), query), sequences)

    def _batches(
        self, component: Component, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the rows of each batch and their energies by one component alone."""
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
            ends = ends[::-1] if component.reversed else ends
            cache = self._caches[id(component)] = _Cache(component.energies.cached(*ends))
            self.tokens += 1
            self.listed += 1
        elif cache.prefixes.kept_bytes > self._most:
            cache.prefixes.clear()
            cache.numbers.clear()
            cache.count = 0
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
            # numbers of empty prefixes are those of their queries
            missing, numbers = nodes, len(self.spaces) + cache.count + np.arange(len(nodes))
            if self.keep:
                rows = np.column_stack([query[nodes], sequences[nodes, : depth + 1]])
                keys = [row.tobytes() for row in rows]
                missing = nodes[[key not in cache.numbers for key in keys]]
                count = len(self.spaces)
                numbers = np.array(
                    [cache.numbers.setdefault(key, count + len(cache.numbers)) for key in keys]
                )
            levels.append(self._children(query, sequences[:, depth], parent, missing, field.device))
            np.add.at(self.tokens, query[missing], 2)
            cache.count += len(missing)
            parent = np.asarray(numbers)[np.cumsum(new) - 1]
        everything = np.arange(len(query))
        np.add.at(self.tokens, query, 2)
        np.add.at(self.listed, query, 2)
        levels.append(self._children(query, sequences[:, -1], parent, everything, field.device))
        return field.sequence_energies(cache.prefixes, levels).float().cpu().numpy()

    def _children(
        self, query: Ids, step: Ids, parent: Ids, rows: Ids, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return the parents and action ids of the children in these rows."""
        actions = self.actions[query[rows], step[rows]]
        return to_device(parent[rows], device), to_device(actions, device)


def batch_size(field: IncrementalEnergies[Any], memory_mib: float) -> int:
    """Return how many sequences fit the memory bound, if none shares a prefix with another."""
    last = field.horizon - 1
    sequence_bytes = sum(
        field.bytes_per_child(depth, leaf=depth == last, cached=True) for depth in range(last + 1)
    )
    return max(1, working_bytes(field.device, memory_mib) // sequence_bytes)
