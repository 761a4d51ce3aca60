"""Energies of any set of full sequences, shared prefixes (or suffixes) computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.search.component import Part, Searchable, parts_of, root_of
from cefito.search.problem import working_bytes
from cefito.search.space import Space, observations

__all__ = ["SequenceEnergies"]

PACKED = 400
"""Prefixes up to which on all levels are computed at once, which is quicker."""


class SequenceEnergies:
    """Evaluates sequences of several queries together.

    Args:
        field: The field.
        spaces: The queries.
        memory_mib: Bound on the memory of one batch, in MiB.

    Attributes:
        parts: The parts of the field.
        tokens: Token forwards spent on each query so far [Q].
        leaves: Sequences evaluated for each query so far [Q].
    """

    def __init__(self, field: Searchable, spaces: Sequence[Space], memory_mib: float) -> None:
        self.parts, self.spaces, self.memory_mib = parts_of(field), spaces, memory_mib
        self.tokens = np.zeros(len(spaces), dtype=np.int64)
        self.leaves = np.zeros(len(spaces), dtype=np.int64)
        self._roots: dict[int, Any] = {}  # of each part walked so far, by its identity

    def __call__(
        self, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Energies [M] of sequences of places [M, T] of the given queries [M].

        An energy that is no finite number counts as infinite.
        """
        energies = np.zeros(len(query))
        for part in self.parts:
            for rows, values in self.walk(part, query, sequences):
                energies[rows] += part.weight * values
        np.add.at(self.leaves, query, 1)
        return np.where(np.isfinite(energies), energies, np.inf)

    def of(self, query: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Energies of sequences of one query [M, T]."""
        return self(np.full(len(sequences), query), sequences)

    def walk(
        self, part: Part, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Energies by one part alone, batch by batch, with the rows of each batch.

        Args:
            part: One of `parts`.
            query: Query of each sequence [M].
            sequences: Sequences of places [M, T].
        """
        field, horizon = part.energies, part.energies.horizon
        if part.reversed:
            sequences = sequences[:, ::-1]
        each = sum(
            field.bytes_per_child(depth, leaf=depth == horizon - 1, each=True)
            for depth in range(horizon)
        )
        most = max(1, working_bytes(field.device, self.memory_mib) // each)
        order = np.lexsort((*sequences.T[::-1], query))
        for first in range(0, len(order), most):
            rows = order[first : first + most]
            yield rows, self._walk(part, query[rows], sequences[rows])

    def _root(self, part: Part) -> Any:
        if id(part) not in self._roots:
            self._roots[id(part)] = root_of(part, *observations(self.spaces, part.energies.device))
            self.tokens += 1
        return self._roots[id(part)]

    def _walk(
        self, part: Part, query: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Energies of sequences sorted by query and actions, in the order that the part reads."""
        field, device, horizon = part.energies, part.energies.device, part.energies.horizon
        # A node is a run of sequences that share a prefix of some length. `new` marks where the
        # nodes of a level begin, `parent` names for each sequence its node on the level above.
        new = np.r_[True, query[1:] != query[:-1]]
        parent = query
        levels = []
        for depth in range(horizon):
            new = new | np.r_[True, sequences[1:, depth] != sequences[:-1, depth]]
            if depth == horizon - 1:
                new = np.ones_like(new)  # a leaf for each sequence, given twice or not
            nodes = np.flatnonzero(new)
            chosen = zip(query[nodes].tolist(), sequences[nodes, depth].tolist(), strict=True)
            ids = [self.spaces[row].problem.actions[place] for row, place in chosen]
            levels.append(
                (
                    torch.from_numpy(parent[nodes]).to(device),
                    torch.tensor(ids, dtype=torch.int64, device=device),
                )
            )
            np.add.at(self.tokens, query[nodes], 2)
            parent = np.cumsum(new) - 1
        prefixes = self._root(part)
        if sum(len(actions) for _, actions in levels) <= PACKED:
            energies = field.tree_energies(prefixes, levels)
        else:
            for parents, actions in levels[:-1]:
                prefixes = field.extend_each(prefixes, parents, actions)
            energies = field.leaf_energy_each(prefixes, *levels[-1])
        values: NDArray[np.float32] = energies.float().cpu().numpy()
        return values
