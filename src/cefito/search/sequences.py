"""Energies of any set of full sequences; shared prefixes (or suffixes) are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.energies import (
    Component,
    IncrementalEnergies,
    Searchable,
    components_of,
    root_of,
    to_device,
    working_bytes,
)
from cefito.search.space import Space, observations

__all__ = ["SequenceEnergies", "batch_size"]

PACKED = 400
"""Most prefixes, over all levels, that are computed as one packed sequence, which is faster."""


class SequenceEnergies:
    """Evaluates sequences of several queries together."""

    # tokens, leaves: token forwards and sequences of each query so far [Q]

    def __init__(self, field: Searchable, spaces: Sequence[Space], memory_mib: float) -> None:
        self.components, self.spaces = components_of(field), spaces
        self.memory_mib = memory_mib
        self.tokens = np.zeros(len(spaces), dtype=np.int64)
        self.leaves = np.zeros(len(spaces), dtype=np.int64)
        self._roots: dict[int, Any] = {}  # of each component walked so far, by its id()

    def __call__(
        self, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the energies [M] of sequences of places [M, T] of the given queries [M].

        NaN counts as infinite.
        """
        energies = np.zeros(len(query))
        for component in self.components:  # E(a) = Σ_m w_m E_m(a)
            for rows, values in self.walk(component, query, sequences):
                energies[rows] += component.weight * values
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

    def _root(self, component: Component) -> Any:
        key = id(component)
        if key not in self._roots:
            ends = observations(self.spaces, component.energies.device)
            self._roots[key] = root_of(component, *ends)
            self.tokens += 1
        return self._roots[key]

    def _walk(
        self, component: Component, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the energies of sequences sorted by query, then by actions as they are read."""
        field, device = component.energies, component.energies.device
        horizon = field.horizon
        # A node is a run of sequences that share a prefix of some length. `new` [M] marks where the
        # nodes of a level begin, `parent` [M] is the node of each sequence on the level above.
        new = np.r_[True, query[1:] != query[:-1]]
        parent = query
        levels = []
        for depth in range(horizon):
            new = new | np.r_[True, sequences[1:, depth] != sequences[:-1, depth]]
            if depth == horizon - 1:
                new = np.ones_like(new)  # one leaf for each sequence, repeated or not
            nodes = np.flatnonzero(new)
            chosen = zip(query[nodes].tolist(), sequences[nodes, depth].tolist(), strict=True)
            ids = [self.spaces[row].problem.actions[place] for row, place in chosen]
            actions = np.array(ids, dtype=np.int64)
            levels.append((to_device(parent[nodes], device), to_device(actions, device)))
            np.add.at(self.tokens, query[nodes], 2)
            parent = np.cumsum(new) - 1
        prefixes = self._root(component)
        if sum(len(actions) for _, actions in levels) <= PACKED:
            energies = field.tree_energies(prefixes, levels)
        else:
            for level in levels[:-1]:
                prefixes = field.extend_each(prefixes, *level)
            energies = field.leaf_energy_each(prefixes, *levels[-1])
        values: NDArray[np.float32] = energies.float().cpu().numpy()
        return values


def batch_size(field: IncrementalEnergies[Any], memory_mib: float) -> int:
    """Return how many sequences fit the memory bound, if none shares a prefix with another."""
    last = field.horizon - 1
    each = sum(
        field.bytes_per_child(depth, leaf=depth == last, each=True) for depth in range(last + 1)
    )
    return max(1, working_bytes(field.device, memory_mib) // each)
