"""Exact search: a walk of the tree of prefixes to all allowed sequences, within a memory bound.

A prefix's keys and values are computed once for all its continuations: two tokens a node instead of
2T + 1 a candidate. Levels that fit the bound are expanded whole, others in chunks, depth first.
`NaiveSearch` is the reference: every candidate evaluated by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import (
    IncrementalEnergies,
    Screening,
    ScreeningSettings,
    Search,
    Searchable,
    SpaceSize,
    Watch,
    components_of,
    observations,
    to_device,
    working_bytes,
)
from cefito.search.composite_search import CompositeWalk
from cefito.search.problem import Best, Plans, Problems, SearchCost, Space, compiled, places
from cefito.search.screening import (
    KEPT,
    LEAST,
    ResultHeap,
    Screened,
    SequenceEnergies,
    batch_size,
    coarse_of,
    rescore,
    sample_size,
    screens,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ExhaustiveSearch", "NaiveSearch"]


class ExhaustiveSearch(ScreeningSettings, Search):
    """Enumeration of all allowed sequences by prefixes; returns what `NaiveSearch` returns.

    With `screening`, leaves whose score in lower precision is within a margin of the best are
    evaluated again in full precision, which decides; if these are too many, the query is searched
    again without screening.
    """

    screening: Screening = "off"

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return the cost of the whole tree, twice with screening."""
        count = len(components_of(field))
        tokens = count * size.tree_tokens
        if count > 1:
            tokens = self._composite_bound(field, size)
        if screens(self.screening, field, LEAST):
            # the best and a sample once more, and then the whole tree if too many may be the best
            again = max(KEPT, 2 * top_k) + 2 * sample_size(size.actions**field.horizon) + 1
            again = min(again, 2 * size.leaves)  # a leaf may be among the best and in the sample
            tokens = 2 * tokens + count * size.tokens_apart(again)
        return SearchCost(tokens, size.leaves)

    def _composite_bound(self, field: Searchable, size: SpaceSize) -> int:
        """Return the tokens of a composite walk, which splits what exceeds the memory bound."""
        most = self._most_kept
        if not size.free:  # sequences are listed in blocks, which are evaluated in batches
            most //= 2 * field.horizon + 8
        if size.leaves > most:  # blocks share the less, the smaller they are
            return len(components_of(field)) * (2 * field.horizon + 1) * size.leaves
        tokens = 0
        for component in components_of(field):
            tokens += size.tree_tokens
            if not size.free:  # each batch computes the path to its first sequence again
                energies = component.energies
                batch = batch_size(energies, self.memory_mib / 2)
                tokens += 2 * energies.horizon * (size.leaves // batch + 2)
        return min(tokens, len(components_of(field)) * size.tokens_apart(size.leaves))

    @property
    def _most_kept(self) -> int:
        """Leaves whose energies are kept between components: four bytes each, in half the bound."""
        return max(1, int(self.memory_mib * 2**20 / 2 / 4))

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` sequences of lowest score; none of problems not begun if stopped."""
        spaces = compiled(problems, field.horizon, top_k)
        # Queries that allow the same actions, all of them freely or none, can be walked together.
        groups: dict[tuple[tuple[int, ...], bool], list[int]] = defaultdict(list)
        for index, space in enumerate(spaces):
            groups[space.problem.actions, space.free].append(index)
        answers: dict[int, Plans] = {}
        last = field.horizon - 1
        for (actions, free), members in groups.items():
            leaves = len(actions) ** field.horizon
            each = max(
                component.energies.bytes_per_child(last, leaf=True, each=not free)
                for component in components_of(field)
            )
            screened = screens(self.screening, field, leaves)
            search = self._screened if screened else self._walked
            together = max(1, self._room(field) // (leaves * each))
            for first in range(0, len(members), together):
                batch = members[first : first + together]
                plans = search(field, [spaces[index] for index in batch], top_k, watch)
                answers.update(zip(batch, plans, strict=True))
        return [answers[index] for index in range(len(problems))]

    def _walked(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        leaves = ResultHeap(spaces, top_k, watch)
        tokens, stopped = self._walk(field, spaces, leaves, watch)
        return leaves.plans(tokens, exact=not stopped)

    def _screened(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        kept = max(KEPT, 2 * top_k)
        sampled = sample_size(spaces[0].size ** field.horizon)
        leaves = ResultHeap(spaces, kept, watch, sampled=sampled)
        tokens, stopped = self._walk(coarse_of(field), spaces, leaves, watch)
        queries = [
            Screened(space, rough, sample, top_k, all_kept=len(rough) < kept)
            for space, rough, sample in zip(spaces, leaves.best, leaves.samples, strict=True)
        ]
        energies = SequenceEnergies(field, spaces, self.memory_mib)
        rescore(queries, energies)
        answers = []
        for index, query in enumerate(queries):
            spent = int(tokens[index] + energies.tokens[index])
            cost = SearchCost(spent, int(leaves.count[index]))
            if not query.complete and not stopped:
                # Too many leaves are within the margin: search again in full precision. Leaves
                # count once, tokens of both precisions count.
                (again,) = self._walked(field, [query.space], top_k, Watch(stop=watch.stop))
                both = again.evaluated + replace(cost, leaves=0)
                answers.append(replace(again, evaluated=both))
                continue
            problem = query.space.problem
            answers.append(query.best().plans(problem, field.horizon, cost, exact=not stopped))
        return answers

    def _walk(
        self, field: Searchable, spaces: Sequence[Space], leaves: ResultHeap, watch: Watch
    ) -> tuple[NDArray[np.int64], bool]:
        """Visit all leaves; return the token forwards of each query [Q], and if it was stopped."""
        walk: CompositeWalk | _Walk
        first = components_of(field)[0].energies
        if first is field:  # its own only component
            walk = _Walk(first, spaces, leaves, self._room(field), watch)
            walk.run()
            return 1 + 2 * walk.nodes, walk.stopped
        energies = SequenceEnergies(field, spaces, self.memory_mib / 2)
        walk = CompositeWalk(
            energies,
            leaves,
            room=working_bytes(field.device, self.memory_mib / 2) // field.horizon,
            most=self._most_kept,
            watch=watch,
        )
        walk.run()
        return energies.tokens, walk.stopped

    def _room(self, field: Searchable) -> int:
        """Return the bytes for each of the T levels; on a CPU all of them fit the cache."""
        return working_bytes(field.device, self.memory_mib) // field.horizon


class _Walk:
    """One walk of the trees of some queries that allow the same actions, all freely or none."""

    def __init__(
        self,
        field: IncrementalEnergies[Any],
        spaces: Sequence[Space],
        leaves: ResultHeap,
        room: int,
        watch: Watch,
    ) -> None:
        self.field, self.spaces, self.found = field, spaces, leaves
        self.room, self.watch = room, watch
        self.size, self.free, self.last = spaces[0].size, spaces[0].free, field.horizon - 1
        self.actions = to_device(np.array(spaces[0].problem.actions), field.device)
        self.nodes = np.zeros(len(spaces), dtype=np.int64)
        self.stopped = False

    def run(self) -> None:
        """Visit all leaves."""
        if not self.watch.stop():
            count = len(self.spaces)
            root = self.field.root(*observations(self.spaces, self.field.device))
            self._visit(root, np.arange(count), np.zeros(count, dtype=np.int64), depth=0)
        else:
            self.stopped = True
        if not self.stopped:
            self.found.finish()

    def _visit(
        self, prefixes: Any, query: NDArray[np.int64], rank: NDArray[np.int64], *, depth: int
    ) -> None:
        """Visit all leaves below prefixes, in chunks whose children fit the room of a level."""
        # query, ascending, and rank among the prefixes of this length (`depth`) of each, [n]
        leaf = depth == self.last
        each = self.field.bytes_per_child(depth, leaf=leaf, each=not self.free)
        step = max(1, self.room // (self.size * each))
        for start in range(0, len(prefixes), step):
            if self.stopped:
                return
            chunk = prefixes.narrow(start, min(step, len(prefixes) - start))
            queries, above = query[start : start + step], rank[start : start + step]
            parents, place = self._children(queries, above, depth)  # both [children]
            queries, ranks = queries[parents], above[parents] * self.size + place
            self.nodes += np.bincount(queries, minlength=len(self.spaces))
            if leaf:
                energies = self._leaves(chunk, parents, place).float().cpu().numpy()
                self.found.add(energies, queries, ranks)
                self.stopped = self.watch.stop()
            elif len(ranks):
                self._visit(self._extended(chunk, parents, place), queries, ranks, depth=depth + 1)

    def _children(
        self, query: NDArray[np.int64], rank: NDArray[np.int64], depth: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the parent and the place of every child to compute."""
        if self.free:
            everything = np.arange(len(rank) * self.size)
            return everything // self.size, everything % self.size
        above = places(rank, self.size, depth)
        allowed = np.concatenate(
            [self.spaces[row].children(above[query == row]) for row in np.unique(query)]
        )
        parents, place = np.nonzero(allowed)
        return parents, place

    def _each(self, parents: NDArray[np.int64], place: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        device = self.field.device
        return to_device(parents, device), self.actions[to_device(place, device)]

    def _extended(self, prefixes: Any, parents: NDArray[np.int64], place: NDArray[np.int64]) -> Any:
        if self.free:
            return self.field.extend(prefixes, self.actions)
        return self.field.extend_each(prefixes, *self._each(parents, place))

    def _leaves(
        self, prefixes: Any, parents: NDArray[np.int64], place: NDArray[np.int64]
    ) -> Tensor:
        if self.free:
            return self.field.leaf_energy(prefixes, self.actions).flatten()
        return self.field.leaf_energy_each(prefixes, *self._each(parents, place))


class NaiveSearch(Search):
    """Enumeration of the allowed part of A^T by full forwards of batches of candidates."""

    batch: int = 4096  # candidates a forward

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:  # noqa: ARG002
        """Return the cost of all sequences, 2T + 1 tokens each."""
        return _cost(field, size.leaves)

    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` sequences of lowest score of each problem."""
        return [
            self._solve(field, space, top_k, watch)
            for space in compiled(problems, field.horizon, top_k)
        ]

    def _solve(self, field: Searchable, space: Space, top_k: int, watch: Watch) -> Plans:
        problem, horizon = space.problem, field.horizon
        initial, goal = (to_device(end, field.device) for end in (problem.initial, problem.goal))
        allowed = np.asarray(problem.actions)
        total, leaves, best = space.size**horizon, 0, Best(top_k)
        for first in range(0, total, self.batch):
            if leaves and watch.stop():
                break
            ranks = np.arange(first, min(first + self.batch, total))
            sequences = places(ranks, space.size, horizon)  # [n, T]
            if not space.free:
                kept = space.allows(sequences)
                sequences, ranks = sequences[kept], ranks[kept]
            energies = field.energy(
                initial.expand(len(ranks), -1),
                goal.expand(len(ranks), -1),
                to_device(allowed[sequences], field.device),
            )
            values = energies.float().cpu().numpy()
            best.add(values, ranks, space.scores(values, sequences))
            leaves += len(ranks)
            watch.advance(min(self.batch, total - first) / total)
        else:
            first = total
        return best.plans(problem, horizon, _cost(field, leaves), exact=first == total)


def _cost(field: Searchable, leaves: int) -> SearchCost:
    tokens = len(components_of(field)) * (2 * field.horizon + 1)
    return SearchCost(token_forwards=leaves * tokens, leaves=leaves)
