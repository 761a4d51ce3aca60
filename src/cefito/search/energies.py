"""Protocols of the fields that a search walks, and of the components that a field may consist of.

A component may read sequences from their end: its prefixes are then suffixes of the sequences, and
its initial observation is the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from numpy.typing import NDArray

from cefito.arrays import aligned

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "Component",
    "Composite",
    "Field",
    "IncrementalEnergies",
    "Searchable",
    "SingleComponent",
    "components_of",
    "root_of",
    "to_device",
    "working_bytes",
]

CACHE_MIB = 64
"""Working memory of a search on a CPU: enough for large products, small enough for the caches."""


class PrefixState(Protocol):
    """Prefixes of one length, of one or several queries; opaque to a search but for this."""

    def __len__(self) -> int: ...

    def narrow(self: StateT, first: int, count: int, /) -> StateT:
        """Return `count` of the prefixes, from number `first`."""


StateT = TypeVar("StateT", bound=PrefixState)


class Field(Protocol):
    """Computes the energies of full sequences."""

    @property
    def horizon(self) -> int:
        """T, the number of actions of a full sequence."""

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor, /) -> Tensor:
        """Return the energies [B] of sequences [B, T] between observations [B, E]."""


class IncrementalEnergies(Field, Protocol[StateT]):
    """A field that also walks the tree of prefixes; see `cefito.field.IncrementalField`."""

    def root(self, initial: Tensor, goal: Tensor, /) -> StateT:
        """Return the empty prefixes of Q queries [Q, E]."""

    def extend(self, prefixes: StateT, actions: Tensor, /) -> StateT:
        """Continue every prefix by every action [A]; children of one parent stay together."""

    def leaf_energy(self, prefixes: StateT, actions: Tensor, /) -> Tensor:
        """Return the energies [n, A] of the sequences that end n prefixes by each action."""

    def extend_each(self, prefixes: StateT, parents: Tensor, actions: Tensor, /) -> StateT:
        """Continue chosen prefixes [m], each by an action of its own [m]."""

    def leaf_energy_each(self, prefixes: StateT, parents: Tensor, actions: Tensor, /) -> Tensor:
        """Return the energies [m] of chosen prefixes [m] ended by actions of their own [m]."""

    def tree_energies(self, roots: StateT, levels: Sequence[tuple[Tensor, Tensor]], /) -> Tensor:
        """Return the energies of sequences given as a tree: for each level parents and actions."""

    def bytes_per_child(self, depth: int, *, leaf: bool, each: bool = False) -> int:
        """Return the memory of one child of a prefix of this depth; `each` if by `extend_each`."""

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one token forward."""

    def coarse(self) -> IncrementalEnergies[Any]:
        """Return the same energies in lower precision."""

    @property
    def coarse_pays(self) -> bool:
        """Whether lower precision is fast enough that screening pays."""


class Component(Protocol):
    """One component of a field."""

    @property
    def energies(self) -> IncrementalEnergies[Any]:
        """Energies of sequences as this component reads them."""

    @property
    def reversed(self) -> bool:
        """Whether it reads sequences backward, from the goal and the last action."""

    @property
    def weight(self) -> float:
        """Factor of its energies."""


class Composite(Field, Protocol):
    """A field that is the weighted sum of several components."""

    def components(self) -> Sequence[Component]:
        """Return all components, backward ones first: the last one then yields leaves in order."""


@dataclass(frozen=True)
class SingleComponent:
    """A component given by its attributes; also a field that is its own only component."""

    energies: IncrementalEnergies[Any]
    reversed: bool = False
    weight: float = 1.0


Searchable = IncrementalEnergies[Any] | Composite
"""The fields that a search takes."""


def components_of(field: Searchable) -> Sequence[Component]:
    """Return the components of a field; a field that is not composite is its own."""
    if hasattr(field, "components"):
        return field.components()
    return (SingleComponent(field),)


def root_of(component: Component, initial: Tensor, goal: Tensor) -> Any:
    """Return the empty prefixes of queries [Q, E], as a component reads them."""
    ends = (goal, initial) if component.reversed else (initial, goal)
    return component.energies.root(*ends)


def working_bytes(device: torch.device, memory_mib: float) -> int:
    """Return the bytes that a search may use at once: on a CPU at most `CACHE_MIB`."""
    return int((min(memory_mib, CACHE_MIB) if device.type == "cpu" else memory_mib) * 2**20)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor, aligned; PyTorch is loaded here, so that settings stay light."""
    import torch

    return torch.from_numpy(aligned(array)).to(device)
