"""Screening: everything is evaluated in lower precision, what may be best once more in full.

The order that a search returns is that of full precision. Lower precision only says which
sequences cannot be among the best, by a margin that is found out while sequences are evaluated in
both: `SAFETY` times the largest error seen, on sequences spread over all of them besides those that
look best. It is widened, and more sequences are evaluated again, until no error exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.search.component import Part, Searchable, Whole, parts_of
from cefito.search.problem import Best, Field, places
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space

__all__ = ["KEPT", "Screened", "Screening", "coarse_of", "rescore", "sample_size", "screens"]

Screening = Literal["auto", "on", "off"]

KEPT = 4096
"""Leaves of lowest coarse score that are kept for evaluation in full precision."""
SAFETY = 3.0
"""Margin over the largest error seen."""
_FIRST = 12  # sequences of lowest coarse score that are evaluated again whatever the margin
LEAST = 256
"""Sequences from which on screening may pay: some hundred are evaluated twice."""


def sample_size(leaves: int) -> int:
    """How many other leaves are evaluated twice, to see the error of the lower precision.

    One of sixty-four, which costs little beside the others; at least 16, at most 64.
    """
    return max(16, min(64, leaves // 64))


def screens(screening: Screening, field: Searchable, sequences: int) -> bool:
    """Whether a search is to screen.

    Args:
        screening: What was asked for; "auto" where lower precision is quicker.
        field: The field.
        sequences: About how many will be evaluated.
    """
    if screening == "auto":
        quicker = all(part.energies.coarse_pays for part in parts_of(field))
        return quicker and sequences >= LEAST
    return screening == "on"


def coarse_of(field: Searchable) -> Searchable:
    """The same field in lower precision."""
    parts = parts_of(field)
    if parts[0].energies is field:  # its own only part
        return parts[0].energies.coarse()
    return _CoarseParts(
        field, tuple(Whole(part.energies.coarse(), part.reversed, part.weight) for part in parts)
    )


@dataclass(frozen=True)
class _CoarseParts:
    """A field of several parts, each in lower precision."""

    field: Field
    coarse: tuple[Part, ...]

    @property
    def horizon(self) -> int:
        return self.field.horizon

    @property
    def device(self) -> torch.device:
        return self.field.device

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        return self.field.energy(initial, goal, actions)

    def parts(self) -> Sequence[Part]:
        return self.coarse


class Screened:
    """Sequences of one query that were evaluated in lower precision, and which are evaluated again.

    Args:
        space: The query.
        rough: Sequences of lowest coarse score.
        sample: Others, whatever their score, with coarse scores too.
        top_k: How many are asked for.
        all_kept: Whether `rough` holds all that were evaluated.
    """

    def __init__(
        self, space: Space, rough: Best, sample: Best, top_k: int, *, all_kept: bool
    ) -> None:
        self.space, self.top_k, self.all_kept = space, top_k, all_kept
        self._kept = len(rough)
        self._ranks = torch.cat([rough.ranks, sample.ranks])
        self._coarse = torch.cat([rough.scores, sample.scores])
        self._known = torch.zeros(len(self._ranks), dtype=torch.bool)  # in full precision
        self._fine = torch.full((len(self._ranks),), torch.inf, dtype=torch.float64)
        self._energy = self._fine.clone()
        wanted = torch.zeros(len(self._ranks), dtype=torch.bool)
        wanted[: max(top_k, _FIRST)] = wanted[len(rough) :] = True
        self._bound = np.inf
        self._next = wanted.nonzero().flatten()

    def wanted(self) -> NDArray[np.int64]:
        """Sequences to evaluate next in full precision [M, T]; none where all is settled."""
        return places(self._ranks[self._next].numpy(), self.space.size, self.space.horizon)

    def learn(self, energies: NDArray[np.float64]) -> None:
        """Take in the energies of what was wanted, in full precision."""
        new = self._next
        self._energy[new] = torch.from_numpy(energies)
        scores = self.space.scores(self._energy[new], self.wanted())
        self._fine[new] = self._energy[new] if scores is None else scores
        self._known[new] = True
        # Every sequence evaluated in both precisions shows an error; the largest, with some safety,
        # bounds what the others may hide. Larger errors widen the margin and add sequences.
        both = self._known & self._fine.isfinite() & self._coarse.isfinite()
        errors = (self._fine - self._coarse)[both].abs()
        margin = SAFETY * float(errors.max()) if len(errors) else 0.0
        kept = self._fine[: self._kept]
        self._bound = float(kept.topk(min(self.top_k, self._kept), largest=False).values[-1])
        self._bound += margin
        self._next = (~self._known & (self._coarse <= self._bound)).nonzero().flatten()

    @property
    def complete(self) -> bool:
        """Whether no other sequence can be among the best, as far as the margin holds."""
        last = float(self._coarse[self._kept - 1]) if self._kept else np.inf
        return self.all_kept or last > self._bound

    def best(self) -> Best:
        """The best by full precision."""
        best = Best(self.top_k)
        _, first = np.unique(self._ranks[self._known].numpy(), return_index=True)
        energy, ranks, fine = (
            part[self._known][first] for part in (self._energy, self._ranks, self._fine)
        )
        best.add(energy, ranks, fine)
        return best


def rescore(screened: Sequence[Screened], energies: SequenceEnergies) -> None:
    """Evaluate again, for all queries together, what may be among their best.

    Args:
        screened: The queries.
        energies: Evaluates sequences of the same queries, in their order, in full precision.
    """
    active: list[int] = list(range(len(screened)))
    while active:
        wanted: list[NDArray[Any]] = [screened[index].wanted() for index in active]
        active, wanted = (
            [index for index, part in zip(active, wanted, strict=True) if len(part)],
            [part for part in wanted if len(part)],
        )
        if not active:
            return
        counts = [len(part) for part in wanted]
        values = energies(np.repeat(active, counts), np.concatenate(wanted))
        for index, share in zip(active, np.split(values, np.cumsum(counts)[:-1]), strict=True):
            screened[index].learn(share)
