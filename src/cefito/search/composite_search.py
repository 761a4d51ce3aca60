"""Exact search of a composite field: each component walks its own tree, and energies are added.

All components but the last leave one partial sum for each leaf; the last adds its own energy and
hands the leaf on. If these sums exceed the memory bound, the enumeration is split into blocks by
the actions at its two ends, where splitting costs each component the least sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import Component, Watch, observations, root_of, to_device
from cefito.search.problem import Space, ranks
from cefito.search.screening import ResultHeap, SequenceEnergies

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CompositeWalk", "split"]

Ids = NDArray[np.int64]
RESCUED = 64
"""Leaves evaluated in full if a walk is stopped before any leaf is complete."""


class EnergyBlock(Protocol):
    """A subset of the enumeration, small enough to keep a number for each of its leaves."""

    @property
    def count(self) -> int:
        """Number of leaves of all queries; their places are 0 to count − 1."""

    def walk(self, component: Component) -> Iterator[tuple[Ids, Tensor]]:
        """Yield the places of each chunk of leaves and their energies by one component."""

    def leaves(self, places: Ids) -> tuple[Ids, Ids]:
        """Return query and rank of the leaves at these places."""

    def spans(self) -> list[tuple[int, int, int]]:
        """Return each query with the first place of its leaves and the place after the last."""


class CompositeWalk:
    """A walk of some queries that allow the same actions, all without constraints or none."""

    def __init__(
        self,
        energies: SequenceEnergies,
        leaves: ResultHeap,
        *,
        room: int,  # bytes for the children computed at once
        most: int,  # leaves whose partial sums are kept at once
        watch: Watch,
    ) -> None:
        self.components, self.spaces = energies.components, energies.spaces
        self.leaves, self.energies = leaves, energies
        self.room, self.most, self.watch = room, most, watch
        self.stopped = False

    def run(self) -> None:
        """Visit all leaves."""
        self.stopped = self.watch.stop()
        for block in self._blocks():
            if self.stopped:
                return
            self._add_up(block)
        self.leaves.finish()

    def _blocks(self) -> Iterator[EnergyBlock]:
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

    def _add_up(self, block: EnergyBlock) -> None:
        """Sum the energies of the components for each leaf of a block."""
        import torch

        device = self.components[0].energies.device
        sums = torch.full((block.count,), torch.inf, device=device)  # partial sums [count]
        share = 1 / len(self.components)
        for number, component in enumerate(self.components):
            last = number == len(self.components) - 1
            for places, values in block.walk(component):  # both [chunk]
                index = to_device(places, device)
                partial = values.float()
                if number:
                    partial = partial + sums[index]
                if last:
                    self.leaves.add(partial.cpu().numpy(), *block.leaves(places), share=share)
                else:
                    sums[index] = partial
                    self.leaves.advance(len(places), share)
                self.stopped = self.watch.stop()
                if self.stopped:
                    self._rescue(block, sums)
                    return

    def _rescue(self, block: EnergyBlock, sums: Tensor) -> None:
        """For queries without a complete leaf, evaluate the leaves of lowest partial sum."""
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
                self.leaves.add(values.astype(np.float32), whose, rank, share=0.0)


class _Product:
    """All sequences of the places `choices` of each step, of several free queries."""

    def __init__(
        self, spaces: Sequence[Space], choices: Sequence[Ids], tokens: Ids, room: int
    ) -> None:
        self.spaces, self.choices, self.tokens, self.room = spaces, choices, tokens, room
        self.widths = [len(choice) for choice in choices]
        self.each = prod(self.widths)
        self.count = len(spaces) * self.each

    def walk(self, component: Component) -> Iterator[tuple[Ids, Tensor]]:
        device = component.energies.device
        ids = np.array(self.spaces[0].problem.actions)
        # place of a leaf = Σ_t digit_t · stride_t, whichever direction the tree is walked in
        strides = [prod(self.widths[step + 1 :]) for step in range(len(self.widths))]
        steps = [
            (to_device(ids[choice], device), np.arange(len(choice)) * stride)
            for choice, stride in zip(self.choices, strides, strict=True)
        ]
        root = root_of(component, *observations(self.spaces, device))
        self.tokens += 1
        first = np.arange(len(self.spaces), dtype=np.int64) * self.each
        if component.reversed:
            steps.reverse()
        yield from self._below(component.energies, root, first, steps, 0)

    def _below(
        self, field: Any, prefixes: Any, above: Ids, steps: list[tuple[Tensor, Ids]], depth: int
    ) -> Iterator[tuple[Ids, Tensor]]:
        """Yield the leaves below prefixes [n]; `above` holds the place of each one's first leaf."""
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

    def walk(self, component: Component) -> Iterator[tuple[Ids, Tensor]]:
        for places, values in self.energies.walk(component, self.query, self.sequences):
            yield places, to_device(values, component.energies.device)

    def leaves(self, places: Ids) -> tuple[Ids, Ids]:
        return self.query[places], self.rank[places]

    def spans(self) -> list[tuple[int, int, int]]:
        queries, first = np.unique(self.query, return_index=True)
        behind = [*first[1:].tolist(), self.count]
        return list(zip(queries.tolist(), first.tolist(), behind, strict=True))


def split(choices: Sequence[Ids], most: int) -> Iterator[list[Ids]]:
    """Split a product of choices into products of at most `most` sequences.

    The choices of the first and the last step are halved first, then those of the inner steps: a
    block of few choices at its last (first) step shares little work read forward (backward).
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
    """Yield all allowed sequences [n, T] below some prefixes, in order, about `most` at a time."""
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
