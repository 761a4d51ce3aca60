"""Exact search of a field of several parts: each part walks its own tree, and energies are joined.

A part that reads sequences forward shares work among those that begin alike, one that reads them
backward among those that end alike. All parts but the last leave one number a leaf behind; the last
adds its own and hands the leaf on. Where so many numbers exceed the memory bound, the enumeration
is split into blocks by the actions at its two ends, which costs each part the least twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.search.component import Part, root_of
from cefito.search.problem import Watch, ranks
from cefito.search.result_heap import Leaves
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, observations

__all__ = ["JoinedWalk", "split"]

Ids = NDArray[np.int64]
RESCUED = 64
"""Leaves evaluated in full where a walk is stopped before any is joined."""


class Block(Protocol):
    """A part of the enumeration small enough to keep a number for each of its leaves."""

    @property
    def count(self) -> int:
        """Number of leaves, over all queries; their places are 0 to count − 1."""

    def walk(self, part: Part) -> Iterator[tuple[Ids, Tensor]]:
        """Energies of all leaves by one part, chunk by chunk, with the places of each chunk."""

    def leaves(self, places: Ids) -> tuple[Ids, Ids]:
        """Query and rank of the leaves at these places."""

    def spans(self) -> list[tuple[int, int, int]]:
        """Each query with the first place of its leaves and the one behind them."""


class JoinedWalk:
    """A walk of some queries that allow the same actions: all of them freely or none.

    Args:
        energies: Evaluates single sequences of the queries; counts the token forwards of all.
        leaves: Takes in the leaves.
        room: Bytes for the children computed at once.
        most: Leaves whose energies by some of the parts are kept at once.
        watch: Asked whether to stop.
    """

    def __init__(
        self,
        energies: SequenceEnergies,
        leaves: Leaves,
        *,
        room: int,
        most: int,
        watch: Watch,
    ) -> None:
        self.parts, self.spaces = energies.parts, energies.spaces
        self.leaves, self.energies = leaves, energies
        self.room, self.most, self.watch = room, most, watch
        self.stopped = False

    def run(self) -> None:
        """Visit all leaves."""
        self.stopped = self.watch.stop()
        for block in self._blocks():
            if self.stopped:
                return
            self._join(block)
        self.leaves.finish()

    def _blocks(self) -> Iterator[Block]:
        if self.spaces[0].free:
            size, horizon = self.spaces[0].size, self.spaces[0].horizon
            whole = [np.arange(size)] * horizon
            for choices in split(whole, max(1, self.most // len(self.spaces))):
                yield _Product(self.spaces, choices, self.energies.tokens, self.room)
            return
        most = max(1, self.most // (2 * self.spaces[0].horizon + 8))
        waiting: list[tuple[int, Ids]] = []
        for query, space in enumerate(self.spaces):
            for sequences in _allowed(space, most):
                if waiting and sum(len(part) for _, part in waiting) + len(sequences) > most:
                    yield _Listed(waiting, self.energies)
                    waiting = []
                waiting.append((query, sequences))
        yield _Listed(waiting, self.energies)

    def _join(self, block: Block) -> None:
        sums = torch.full((block.count,), torch.inf, device=self.parts[0].energies.device)
        share = 1 / len(self.parts)
        for number, part in enumerate(self.parts):
            last = number == len(self.parts) - 1
            for places, values in block.walk(part):
                index = torch.from_numpy(places).to(sums.device)
                joined = part.weight * values.float()
                if number:
                    joined += sums[index]
                if last:
                    self.leaves.add(joined, *block.leaves(places), share=share)
                else:
                    sums[index] = joined
                    self.leaves.advance(len(places), share)
                self.stopped = self.watch.stop()
                if self.stopped:
                    self._rescue(block, sums)
                    return

    def _rescue(self, block: Block, sums: Tensor) -> None:
        """Of queries that have no leaf yet, join the leaves that look best by what is known."""
        for query, first, behind in block.spans():
            if self.leaves.count[query]:
                continue
            count = min(behind - first, RESCUED + self.leaves.best[query].top_k)
            best = sums[first:behind].topk(count, largest=False)
            places = first + best.indices[best.values.isfinite()].cpu().numpy()
            if len(places):
                _, rank = block.leaves(np.sort(places))
                values = self.energies.of(query, self.leaves.sequences(rank))
                whose = np.full(len(rank), query)
                self.leaves.add(torch.from_numpy(values), whose, rank, share=0.0)


class _Product:
    """All sequences of some choices at each step, for several queries that allow them freely.

    Args:
        spaces: The queries.
        choices: Places of the actions at each step.
        tokens: Token forwards of each query [Q], counted up.
        room: Bytes for the children computed at once.
    """

    def __init__(
        self, spaces: Sequence[Space], choices: Sequence[Ids], tokens: Ids, room: int
    ) -> None:
        self.spaces, self.choices, self.tokens, self.room = spaces, choices, tokens, room
        self.widths = [len(choice) for choice in choices]
        self.each = prod(self.widths)
        self.count = len(spaces) * self.each

    def walk(self, part: Part) -> Iterator[tuple[Ids, Tensor]]:
        device = part.energies.device
        ids = torch.tensor(self.spaces[0].problem.actions, device=device)
        strides = [prod(self.widths[step + 1 :]) for step in range(len(self.widths))]
        steps = [
            (ids[torch.from_numpy(choice).to(device)], np.arange(len(choice)) * stride)
            for choice, stride in zip(self.choices, strides, strict=True)
        ]
        root = root_of(part, *observations(self.spaces, device))
        self.tokens += 1
        first = np.arange(len(self.spaces), dtype=np.int64) * self.each
        yield from self._below(part.energies, root, first, steps[:: -1 if part.reversed else 1], 0)

    def _below(
        self, field: Any, prefixes: Any, above: Ids, steps: list[tuple[Tensor, Ids]], depth: int
    ) -> Iterator[tuple[Ids, Tensor]]:
        """The leaves below prefixes, of each of which the place of its first leaf is given."""
        actions, offsets = steps[depth]
        leaf = depth == len(steps) - 1
        step = max(1, self.room // (len(actions) * field.bytes_per_child(depth, leaf=leaf)))
        for start in range(0, len(prefixes), step):
            chunk = prefixes.narrow(start, min(step, len(prefixes) - start))
            places = (above[start : start + step, None] + offsets).ravel()
            self.tokens += 2 * np.bincount(places // self.each, minlength=len(self.spaces))
            if leaf:
                yield places, field.leaf_energy(chunk, actions).flatten()
            else:
                yield from self._below(
                    field, field.extend(chunk, actions), places, steps, depth + 1
                )

    def leaves(self, places: Ids) -> tuple[Ids, Ids]:
        query, within = np.divmod(places, self.each)
        if min(self.widths) == self.spaces[0].size:  # the whole enumeration
            return query, within
        rank = np.zeros_like(within)
        power = 1
        for choice in reversed(self.choices):
            within, digit = np.divmod(within, len(choice))
            rank += power * choice[digit]
            power *= self.spaces[0].size
        return query, rank

    def spans(self) -> list[tuple[int, int, int]]:
        each = self.each
        return [(query, query * each, (query + 1) * each) for query in range(len(self.spaces))]


class _Listed:
    """Some sequences of some queries, in their order."""

    def __init__(self, listed: Sequence[tuple[int, Ids]], energies: SequenceEnergies) -> None:
        self.energies = energies
        self.query = np.repeat(
            np.array([query for query, _ in listed], dtype=np.int64),
            [len(sequences) for _, sequences in listed],
        )
        self.sequences = np.concatenate([sequences for _, sequences in listed])
        self.rank = ranks(self.sequences, energies.spaces[0].size)
        self.count = len(self.rank)

    def walk(self, part: Part) -> Iterator[tuple[Ids, Tensor]]:
        for places, values in self.energies.walk(part, self.query, self.sequences):
            yield places, torch.from_numpy(values).to(part.energies.device)

    def leaves(self, places: Ids) -> tuple[Ids, Ids]:
        return self.query[places], self.rank[places]

    def spans(self) -> list[tuple[int, int, int]]:
        queries, first = np.unique(self.query, return_index=True)
        behind = [*first[1:].tolist(), self.count]
        return list(zip(queries.tolist(), first.tolist(), behind, strict=True))


def split(choices: Sequence[Ids], most: int) -> Iterator[list[Ids]]:
    """Products of choices that together make up one product, each of at most so many sequences.

    Halved are the choices of the first and the last step, the larger ones first, then those of the
    steps between: a block shares the less work, forward or backward, the fewer choices its last or
    first step has.
    """
    if prod(len(choice) for choice in choices) <= most:
        yield list(choices)
        return
    ends = [(step, len(choices) - 1 - step) for step in range((len(choices) + 1) // 2)]
    pair = next((pair for pair in ends if any(len(choices[step]) > 1 for step in pair)), None)
    if pair is None:
        yield list(choices)
        return
    chosen = max(pair, key=lambda step: len(choices[step]))
    middle = (len(choices[chosen]) + 1) // 2
    for part in (choices[chosen][:middle], choices[chosen][middle:]):
        yield from split([*choices[:chosen], part, *choices[chosen + 1 :]], most)


def _allowed(space: Space, most: int, prefixes: Ids | None = None) -> Iterator[Ids]:
    """All allowed sequences [n, T] below some prefixes, in their order, so many at a time."""
    if prefixes is None:
        prefixes = np.zeros((1, 0), dtype=np.int64)
    if prefixes.shape[1] == space.horizon:
        yield prefixes
        return
    step = max(1, most // space.size)
    for start in range(0, len(prefixes), step):
        chunk = prefixes[start : start + step]
        parents, place = np.nonzero(space.children(chunk))
        if len(place):
            children = np.concatenate([chunk[parents], place[:, None]], axis=1)
            yield from _allowed(space, most, children)
