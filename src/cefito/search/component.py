"""The parts of a field: fields of their own, whose weighted energies add up to its energy.

A part may read sequences from their end. Its prefixes are then suffixes of the sequences, and its
own initial observation is the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, cast

from torch import Tensor

from cefito.search.problem import Field, IncrementalEnergies

__all__ = ["Part", "Parted", "Searchable", "Whole", "parts_of", "root_of"]


class Part(Protocol):
    """One part of a field."""

    @property
    def energies(self) -> IncrementalEnergies[Any]:
        """Energies of sequences as this part reads them."""

    @property
    def reversed(self) -> bool:
        """Whether it reads sequences from the goal and the last action backwards."""

    @property
    def weight(self) -> float:
        """What its energies are multiplied by."""


class Parted(Field, Protocol):
    """A field of several parts."""

    def parts(self) -> Sequence[Part]:
        """All parts; those that read backwards first, so that leaves come in order at last."""


@dataclass(frozen=True)
class Whole:
    """A field that is its own only part."""

    energies: IncrementalEnergies[Any]
    reversed: bool = False
    weight: float = 1.0


Searchable = IncrementalEnergies[Any] | Parted
"""What a search takes: a field that walks the tree of prefixes, or one made of such."""


def parts_of(field: Searchable) -> Sequence[Part]:
    """The parts of a field; one where it is not made of several."""
    return field.parts() if _parted(field) else (Whole(cast("IncrementalEnergies[Any]", field)),)


def root_of(part: Part, initial: Tensor, goal: Tensor) -> Any:
    """The empty prefixes of queries [Q, E], as a part reads them."""
    return part.energies.root(*((goal, initial) if part.reversed else (initial, goal)))


def _parted(field: object) -> TypeGuard[Parted]:
    return hasattr(field, "parts")
