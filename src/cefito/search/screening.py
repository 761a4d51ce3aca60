"""Screening: evaluate all sequences in lower precision, and the possible best again in full.

Lower precision only decides which sequences cannot be among the best, by a margin: `SAFETY` times
the largest error seen, on the sequences that look best and on a sample of all others. The margin is
widened, and more sequences are evaluated again, until no error exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cefito.search.base import Screening
from cefito.search.energies import Component, Searchable, SingleComponent, components_of
from cefito.search.problem import Best, places
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["KEPT", "LEAST", "Screened", "coarse_of", "rescore", "sample_size", "screens"]

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
    coarse = (
        SingleComponent(one.energies.coarse(), one.reversed, one.weight) for one in components
    )
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
