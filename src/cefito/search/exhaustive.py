"""Exact search: all of A^T by a walk of the tree of prefixes, within a memory bound.

A prefix's keys and values are computed once for all its continuations, which costs two tokens a node instead of 2T + 1 a
candidate. Levels that fit the bound are expanded whole; others in chunks, depth first. Queries that allow the same actions are
walked together as far as the bound permits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cefito.errors import ConfigError
from cefito.search.problem import Best, Effort, IncrementalEnergies, Plans, Problem, StateT, check_problems

__all__ = ["ExhaustiveSearch"]


class ExhaustiveSearch:
    """Exhaustive enumeration of A^T by prefixes; returns what `NaiveSearch` returns.

    Args:
        memory_mib: Bound on the memory of the prefixes held and of the children being computed, in MiB.

    Raises:
        ConfigError: A bound that is not positive.
    """

    def __init__(self, *, memory_mib: float = 256) -> None:
        if memory_mib <= 0:
            raise ConfigError(f"memory bound of {memory_mib} MiB; expected a positive number.")
        self.memory_mib = memory_mib

    def search(self, field: IncrementalEnergies[Any], problems: Sequence[Problem], top_k: int) -> list[Plans]:
        """The `top_k` sequences of lowest energy of each problem, in the order of the problems.

        Raises:
            ConfigError: A problem without actions, or top_k below 1.
        """
        check_problems(problems, top_k)
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, problem in enumerate(problems):
            alike[problem.actions].append(index)
        found: dict[int, Plans] = {}
        for actions, members in alike.items():
            together = max(1, self._parents(field, 0, len(actions), whole=True))
            for first in range(0, len(members), together):
                group = members[first:first + together]
                plans = self._walk_group(field, [problems[index] for index in group], top_k)
                found.update(zip(group, plans, strict=True))
        return [found[index] for index in range(len(problems))]

    def _parents(self, field: IncrementalEnergies[Any], depth: int, size: int, *, whole: bool = False) -> int:
        """How many prefixes of this depth may be continued at once; with `whole`, all the way down."""
        last = field.horizon - 1
        each = self.memory_mib * 2 ** 20 / field.horizon  # every level on the way holds its own part
        if whole:
            leaves = size ** (field.horizon - depth)
            return int(each // (leaves * field.bytes_per_child(last, leaf=True)))
        return int(each // (size * field.bytes_per_child(depth, leaf=depth == last)))

    def _walk_group(self, field: IncrementalEnergies[StateT], group: Sequence[Problem], top_k: int) -> list[Plans]:
        allowed = torch.tensor(group[0].actions, device=field.device)
        initial, goal = (torch.from_numpy(np.stack(rows)).to(field.device)
                         for rows in ([p.initial for p in group], [p.goal for p in group]))
        walk = _Walk(self, field, allowed, [Best(top_k) for _ in group])
        walk.visit(field.root(initial, goal), depth=0, first=0)
        size, horizon = len(allowed), field.horizon
        effort = Effort(token_forwards=1 + 2 * sum(size ** level for level in range(1, horizon + 1)),
                        leaves=size ** horizon)
        return [best.plans(problem, horizon, effort, exact=True)
                for best, problem in zip(walk.best, group, strict=True)]


class _Walk:
    """One walk of the trees of some queries that allow the same actions."""

    def __init__(self, search: ExhaustiveSearch, field: IncrementalEnergies[Any], allowed: Tensor,
                 best: list[Best]) -> None:
        self.search, self.field, self.allowed, self.best = search, field, allowed, best
        self.size, self.last = len(allowed), field.horizon - 1

    def visit(self, prefixes: Any, *, depth: int, first: int) -> None:
        """Visit all leaves below prefixes that follow each other in the order of (query, rank) from `first`."""
        step = max(1, self.search._parents(self.field, depth, self.size))
        for start in range(0, len(prefixes), step):
            chunk = prefixes.narrow(start, min(step, len(prefixes) - start))
            if depth < self.last:
                self.visit(self.field.extend(chunk, self.allowed), depth=depth + 1, first=(first + start) * self.size)
            else:
                self._collect(self.field.leaf_energy(chunk, self.allowed).flatten(), (first + start) * self.size)

    def _collect(self, energies: Tensor, first: int) -> None:
        leaves = self.size ** (self.last + 1)
        done = 0
        while done < len(energies):
            query, rank = divmod(first + done, leaves)
            count = min(len(energies) - done, leaves - rank)
            self.best[query].add(energies[done:done + count], rank)
            done += count
