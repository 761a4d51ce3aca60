"""Exact search: every allowed sequence, within a memory bound.

Free problems are a walk of the tree of prefixes: a prefix's keys and values are computed once for
all its continuations, two tokens a node instead of 2T + 1 a candidate. Levels that fit the bound
are expanded whole, others in chunks, depth first. Each component of a field walks its own tree, and
the energies of each sequence are added. Sequences under constraints, and those whose sums exceed
the memory bound, are listed and evaluated block by block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import (
    Search,
    Searchable,
    SpaceSize,
    Watch,
    components_of,
    observations,
    to_device,
    working_bytes,
)
from cefito.search.problem import Best, Plans, Problems, SearchCost, Space, compiled, places, ranks
from cefito.search.screening import ScreeningSettings, kept, rescored, screened_bound
from cefito.search.sequences import SequenceEnergies, batch_size

Ids = NDArray[np.int64]


class ExhaustiveSearch(ScreeningSettings, Search):
    """Enumeration of all allowed sequences by prefixes, in bfloat16 if `screening` is on."""

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the cost of the whole tree of each component, with what blocks do not share."""
        blocks = 1
        if not (size.free and self._walks(field, size.leaves)):
            blocks = -(-size.leaves // self._block(field))
        apart = 1 + 2 * field.horizon * size.leaves  # 2T each in any batches, and the root
        # each block computes the path to its first sequence again
        shared = size.tree_tokens + 2 * field.horizon * (blocks - 1)
        tokens = sum(
            apart if component.reversed and blocks > 1 else min(apart, shared)
            for component in components_of(field)
        )
        cost = SearchCost(tokens, size.leaves)
        return screened_bound(field, cost, top_k) if self.screening == "on" else cost

    def _walks(self, field: Searchable, leaves: int) -> bool:
        """Whether the sums of the components' energies, four bytes each, fit half the bound."""
        return len(components_of(field)) == 1 or leaves * 4 <= self.memory_mib * 2**20 / 2

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` sequences of lowest score; none of problems not begun if stopped."""
        spaces = compiled(problems, field.horizon, top_k)
        if self.screening == "on":
            plain = self.model_copy(update={"screening": "off"})
            both = zip(spaces, plain.search(field.coarse, spaces, kept(top_k), watch), strict=True)
            return [
                rescored(field, space, replace(coarse, exact=False), top_k, self.memory_mib)
                for space, coarse in both
            ]
        answers: dict[int, Plans] = {}
        # Queries that allow the same actions freely can be walked together.
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, space in enumerate(spaces):
            if space.free and self._walks(field, space.size**space.horizon):
                groups[space.problem.actions].append(index)
            else:
                answers[index] = self._listed(field, space, top_k, watch)
        room = working_bytes(field.device, self.memory_mib) // field.horizon  # of each level
        last, components = field.horizon - 1, components_of(field)
        leaf_bytes = max(
            component.energies.bytes_per_child(last, leaf=True) for component in components
        )
        for actions, members in groups.items():
            together = max(1, room // (len(actions) ** field.horizon * leaf_bytes))
            for first in range(0, len(members), together):
                batch = members[first : first + together]
                walk = _Walk(field, [spaces[member] for member in batch], top_k, room, watch)
                walk.run()
                answers.update(zip(batch, walk.plans(self.memory_mib), strict=True))
        return [answers[index] for index in range(len(problems))]

    def _block(self, field: Searchable) -> int:
        """Return how many listed sequences are evaluated together."""
        return min(
            batch_size(component.energies, self.memory_mib) for component in components_of(field)
        )

    def _listed(self, field: Searchable, space: Space, top_k: int, watch: Watch) -> Plans:
        """Evaluate the allowed sequences of one query."""
        energies, best = SequenceEnergies(field, [space], self.memory_mib), Best(top_k)
        total, stopped = space.size**space.horizon, watch.stop()
        for sequences in () if stopped else _blocks(space, self._block(field)):
            if stopped:
                break
            values = energies.of(0, sequences)
            best.add(values, ranks(sequences, space.size), space.scores(values, sequences))
            watch.advance(len(sequences) / total)
            stopped = watch.stop()
        if not stopped:  # what constraints saved
            watch.advance(1 - int(energies.leaves[0]) / total)
        cost = SearchCost(int(energies.tokens[0]), int(energies.leaves[0]))
        return best.plans(space.problem, space.horizon, cost, exact=not stopped)


def _blocks(space: Space, most: int) -> Iterator[Ids]:
    """Yield all allowed sequences [n, T] in order, `most` at a time."""
    waiting = np.zeros((0, space.horizon), dtype=np.int64)
    for sequences in _allowed(space, most, np.zeros((1, 0), dtype=np.int64)):
        waiting = np.concatenate([waiting, sequences])
        while len(waiting) >= most:
            yield waiting[:most]
            waiting = waiting[most:]
    if len(waiting):
        yield waiting


def _allowed(space: Space, most: int, prefixes: Ids) -> Iterator[Ids]:
    """Yield all allowed sequences [n, T] below some prefixes, in order, about `most` at a time."""
    if prefixes.shape[1] == space.horizon:
        yield prefixes
        return
    step = max(1, most // space.size)
    for start in range(0, len(prefixes), step):
        chunk = prefixes[start : start + step]
        parents, place = np.nonzero(space.children(chunk))
        children = np.concatenate([chunk[parents], place[:, None]], axis=1)
        yield from _allowed(space, most, children)


class _Walk:
    """One walk of the trees of some free queries that allow the same actions."""

    def __init__(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, room: int, watch: Watch
    ) -> None:
        self.field, self.components = field, components_of(field)
        self.spaces, self.room, self.watch = spaces, room, watch
        self.size, self.horizon = spaces[0].size, spaces[0].horizon
        self.actions = to_device(np.array(spaces[0].problem.actions), field.device)
        self.ends = observations(spaces, field.device)
        self.best = [Best(top_k) for _ in spaces]
        self.nodes, self.leaves = (np.zeros(len(spaces), dtype=np.int64) for _ in range(2))

    def run(self) -> None:
        """Visit all leaves."""
        self.stopped = self.watch.stop()
        if len(self.components) > 1:  # energies of the first component, then of all [Q, A^T]
            self.sums = np.full((len(self.spaces), self.size**self.horizon), np.inf, np.float32)
        for number, component in enumerate(self.components):
            self.number, self.component = number, component
            # rank of a sequence = Σ_t place_t · A^(T−t), in whichever direction it is read
            self.powers = self.size ** np.arange(self.horizon, dtype=np.int64)
            if not self.component.reversed:
                self.powers = self.powers[::-1]
            if not self.stopped:
                ends = self.ends[::-1] if self.component.reversed else self.ends
                query = np.arange(len(self.spaces))
                self._visit(self.component.energies.root(*ends), query, np.zeros_like(query), 0)

    def plans(self, memory_mib: float) -> list[Plans]:
        """Return the plans of each query; if none is complete, of the best of one component."""
        answers = []
        for query, (space, best) in enumerate(zip(self.spaces, self.best, strict=True)):
            tokens = len(self.components) + 2 * int(self.nodes[query])
            if len(self.components) > 1 and not len(best):
                first = self.sums[query].argsort(kind="stable")[: best.top_k]
                first = first[np.isfinite(self.sums[query, first])]
                sequences = places(first, self.size, self.horizon)
                sequence_energies = SequenceEnergies(self.field, [space], memory_mib)
                energies = sequence_energies.of(0, sequences)
                best.add(energies, first, space.scores(energies, sequences))
                tokens, self.leaves[query] = tokens + int(sequence_energies.tokens[0]), len(first)
            cost = SearchCost(tokens, int(self.leaves[query]))
            answers.append(best.plans(space.problem, self.horizon, cost, exact=not self.stopped))
        return answers

    def _visit(self, prefixes: Any, query: Ids, rank: Ids, depth: int) -> None:
        """Visit all leaves below prefixes, in chunks whose children fit the room of a level."""
        # query, ascending, and the part of the rank of each one's leaves that is known, [n]
        field, leaf = self.component.energies, depth == self.horizon - 1
        step = max(1, self.room // (self.size * field.bytes_per_child(depth, leaf=leaf)))
        for start in range(0, len(prefixes), step):
            if self.stopped:
                return
            chunk = prefixes.narrow(start, min(step, len(prefixes) - start))
            queries = query[start : start + step].repeat(self.size)
            children = rank[start : start + step, None] + np.arange(self.size) * self.powers[depth]
            self.nodes += np.bincount(queries, minlength=len(self.spaces))
            if leaf:
                energies = field.leaf_energy(chunk, self.actions).flatten()
                self._add(energies.float().cpu().numpy(), queries, children.ravel())
                self.stopped = self.watch.stop()
            else:
                extended = field.extend(chunk, self.actions)
                self._visit(extended, queries, children.ravel(), depth + 1)

    def _add(self, energies: NDArray[np.float32], query: Ids, rank: Ids) -> None:
        """Add the energies of a component of leaves of distinct ranks [n], by ascending query."""
        if len(self.components) > 1:
            if self.number:
                energies = energies + self.sums[query, rank]
            self.sums[query, rank] = energies
        for index in np.unique(query):
            first, behind = np.searchsorted(query, [index, index + 1])
            space, query_energies, query_ranks = (
                self.spaces[index],
                energies[first:behind],
                rank[first:behind],
            )
            self.watch.advance(len(query_ranks) / self.size**space.horizon / len(self.components))
            if self.number == len(self.components) - 1:
                scores = None
                if not space.objective.pure:
                    scores = space.scores(
                        query_energies, places(query_ranks, self.size, space.horizon)
                    )
                self.best[index].add(query_energies, query_ranks, scores)
                self.leaves[index] += len(query_ranks)
