"""Exact search: all allowed sequences by a walk of the tree of prefixes, within a memory bound.

A prefix's keys and values are computed once for all its continuations, which costs two tokens a
node instead of 2T + 1 a candidate. Levels that fit the bound are expanded whole; others in chunks,
depth first. Queries that allow the same actions are walked together as far as the bound permits.
Where constraints or infinite costs forbid sequences, only the children that lead to an allowed one
are computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.errors import ConfigError
from cefito.search.component import Searchable, parts_of
from cefito.search.composite_search import JoinedWalk
from cefito.search.problem import (
    IncrementalEnergies,
    Plans,
    Problem,
    SearchCost,
    Watch,
    places,
    working_bytes,
)
from cefito.search.result_heap import Leaves
from cefito.search.screening import (
    KEPT,
    Screened,
    Screening,
    coarse_of,
    rescore,
    sample_size,
    screens,
)
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled, observations

__all__ = ["ExhaustiveSearch"]


class ExhaustiveSearch:
    """Enumeration of all allowed sequences by prefixes; returns what `NaiveSearch` returns.

    With `screening` all leaves are first evaluated in the field's lower precision. Those whose
    coarse score lies within a margin of the best are evaluated again in full precision and alone
    decide; see `screening`. Where too many leaves lie within it, the query is searched again
    without.

    Args:
        memory_mib: Bound on the memory of the prefixes held and of the children being computed, in
            MiB.
        screening: Whether to evaluate in lower precision first; "auto" where that is quicker.

    Raises:
        ConfigError: A bound that is not positive.
    """

    def __init__(self, *, memory_mib: float = 1024, screening: Screening = "off") -> None:
        if not memory_mib > 0:
            raise ConfigError(f"memory bound of {memory_mib} MiB; expected a positive number.")
        self.memory_mib, self.screening = memory_mib, screening

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """The `top_k` sequences of lowest score of each problem, in the order of the problems.

        Stopped early, a problem not yet begun gives no plan.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
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
                part.energies.bytes_per_child(last, leaf=True, each=not free)
                for part in parts_of(field)
            )
            screened = screens(self.screening, field, leaves)
            search = self._screened if screened else self._walked
            together = max(1, self._room(field) // (leaves * each))
            for first in range(0, len(members), together):
                part = members[first : first + together]
                plans = search(field, [spaces[index] for index in part], top_k, watch)
                answers.update(zip(part, plans, strict=True))
        return [answers[index] for index in range(len(problems))]

    def _walked(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        leaves = Leaves(spaces, top_k, watch)
        tokens, stopped = self._walk(field, spaces, leaves, watch)
        return leaves.plans(tokens, exact=not stopped)

    def _screened(
        self, field: Searchable, spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        kept = max(KEPT, 2 * top_k)
        sampled = sample_size(spaces[0].size ** field.horizon)
        leaves = Leaves(spaces, kept, watch, sampled=sampled)
        tokens, stopped = self._walk(coarse_of(field), spaces, leaves, watch)
        queries = [
            Screened(space, rough, sample, top_k, all_kept=len(rough) < kept)
            for space, rough, sample in zip(spaces, leaves.best, leaves.samples, strict=True)
        ]
        energies = SequenceEnergies(field, spaces, self.memory_mib)
        rescore(queries, energies)
        answers = []
        for index, query in enumerate(queries):
            effort = SearchCost(
                int(tokens[index] + energies.tokens[index]), int(leaves.count[index])
            )
            if not query.complete and not stopped:
                # Too many leaves within the margin: once more in full precision. The same leaves
                # are counted once, the tokens of both.
                (again,) = self._walked(field, [query.space], top_k, Watch(stop=watch.stop))
                both = again.evaluated + replace(effort, leaves=0)
                answers.append(replace(again, evaluated=both))
                continue
            problem = query.space.problem
            answers.append(query.best().plans(problem, field.horizon, effort, exact=not stopped))
        return answers

    def _walk(
        self,
        field: Searchable,
        spaces: Sequence[Space],
        leaves: Leaves,
        watch: Watch,
    ) -> tuple[NDArray[np.int64], bool]:
        """Visit all leaves; the token forwards of each query [Q], and whether it was stopped."""
        walk: JoinedWalk | _Walk
        first = parts_of(field)[0].energies
        if first is field:  # its own only part
            walk = _Walk(first, spaces, leaves, self._room(field), watch)
            walk.run()
            return 1 + 2 * walk.nodes, walk.stopped
        energies = SequenceEnergies(field, spaces, self.memory_mib / 2)
        walk = JoinedWalk(
            energies,
            leaves,
            room=working_bytes(field.device, self.memory_mib / 2) // field.horizon,
            most=max(1, int(self.memory_mib * 2**20 / 2 / 4)),  # four bytes each, in half of it
            watch=watch,
        )
        walk.run()
        return energies.tokens, walk.stopped

    def _room(self, field: Searchable) -> int:
        """Bytes for each level, since every level on the way down holds a part of its own.

        On a CPU all of them together fit the cache.
        """
        return working_bytes(field.device, self.memory_mib) // field.horizon


class _Walk:
    """One walk of the trees of some queries that allow the same actions, all freely or none."""

    def __init__(
        self,
        field: IncrementalEnergies[Any],
        spaces: Sequence[Space],
        leaves: Leaves,
        room: int,
        watch: Watch,
    ) -> None:
        self.field, self.spaces, self.found = field, spaces, leaves
        self.room, self.watch = room, watch
        self.size, self.free, self.last = spaces[0].size, spaces[0].free, field.horizon - 1
        self.actions = torch.tensor(spaces[0].problem.actions, device=field.device)
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
        """Visit all leaves below prefixes, in chunks whose children fit the room of a level.

        Args:
            prefixes: n prefixes, those of a query together.
            query: The query of each [n].
            rank: The rank of each among the prefixes of its length [n].
            depth: Their length.
        """
        leaf = depth == self.last
        each = self.field.bytes_per_child(depth, leaf=leaf, each=not self.free)
        step = max(1, self.room // (self.size * each))
        for start in range(0, len(prefixes), step):
            if self.stopped:
                return
            chunk = prefixes.narrow(start, min(step, len(prefixes) - start))
            queries, above = query[start : start + step], rank[start : start + step]
            parents, place = self._children(queries, above, depth)
            queries, ranks = queries[parents], above[parents] * self.size + place
            self.nodes += np.bincount(queries, minlength=len(self.spaces))
            if leaf:
                self.found.add(self._leaves(chunk, parents, place), queries, ranks)
                self.stopped = self.watch.stop()
            elif len(ranks):
                self._visit(self._extended(chunk, parents, place), queries, ranks, depth=depth + 1)

    def _children(
        self, query: NDArray[np.int64], rank: NDArray[np.int64], depth: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Parent and place of every child to compute."""
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
        actions = self.actions[torch.from_numpy(place).to(device)]
        return torch.from_numpy(parents).to(device), actions

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
