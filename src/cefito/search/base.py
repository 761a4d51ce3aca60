"""The base of all searches, the settings that several share, and the fields that they walk.

A field is known by its protocol only. It may consist of components, and a component may read
sequences from their end: its prefixes are then suffixes of the sequences, and its initial
observation is the goal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pydantic
from numpy.typing import NDArray

from cefito.files import aligned
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, Problems, SearchCost, Space
from cefito.settings import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor


CACHE_MIB = 64
"""Working memory of a search on a CPU: enough for large products, small enough for the caches."""


class PrefixState(Protocol):
    """Prefixes of one length, of one or several queries; otherwise opaque to a search."""

    def __len__(self) -> int: ...

    def narrow(self: StateT, first: int, count: int, /) -> StateT:
        """Return `count` of the prefixes, from number `first`."""


class KeptPrefixes(Protocol):
    """Prefixes of any lengths of one or several queries, numbered as they were added."""

    @property
    def kept_bytes(self) -> int:
        """Memory that they take."""

    def clear(self) -> None:
        """Keep the empty prefixes alone, whose numbers are those of their queries."""


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
        """Return the energies [B] of sequences [B, T] between observations [B, E].

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            actions: Action ids [B, T].
        """

    @property
    def coarse(self) -> Any:
        """The same field in bfloat16."""


class IncrementalEnergies(Field, Protocol[StateT]):
    """A field that also walks the tree of prefixes; see `cefito.field.IncrementalField`."""

    def root(self, initial: Tensor, goal: Tensor, /) -> StateT:
        """Return the empty prefixes of Q queries [Q, E]."""

    def extend(self, prefixes: StateT, actions: Tensor, /) -> StateT:
        """Continue every prefix by every action [A]; children of one parent stay together."""

    def leaf_energy(self, prefixes: StateT, actions: Tensor, /) -> Tensor:
        """Return the energies [n, A] of the sequences that end n prefixes by each action."""

    def cached(self, initial: Tensor, goal: Tensor, /) -> Any:
        """Return `KeptPrefixes`: the empty prefixes of Q queries [Q, E]."""

    def sequence_energies(self, cache: Any, levels: Sequence[tuple[Tensor, Tensor]], /) -> Tensor:
        """Add prefixes to a cache and return the energies [m] of sequences, all in one pass.

        `levels` has for each number of actions, 1 to T, the numbers of the prefixes to continue,
        added ones included, and the actions that continue them, both [n]. Those of T actions are
        the sequences.
        """

    def bytes_per_child(self, depth: int, *, leaf: bool, cached: bool = False) -> int:
        """Return the memory of one child of a prefix of this depth; `cached` if in a cache.

        Args:
            depth: Number of actions of the prefix.
            leaf: Whether the child ends a sequence.
            cached: Whether it is in a cache.
        """

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one token forward."""

    @property
    def coarse_pays(self) -> bool:
        """Whether its energies in bfloat16 are computed faster."""


class Component(NamedTuple):
    """One component of a field."""

    energies: IncrementalEnergies[Any]  # of sequences as this component reads them
    reversed: bool = False  # whether it reads them backward, from the goal and the last action


class Composite(Field, Protocol):
    """A field that is the sum of several components."""

    def components(self) -> Sequence[tuple[IncrementalEnergies[Any], bool]]:
        """Return the fields of the components, and whether each reads sequences backward."""


Searchable = IncrementalEnergies[Any] | Composite
"""The fields that a search takes."""


def components_of(field: Searchable) -> Sequence[Component]:
    """Return the components of a field; a field that is not composite is its own."""
    if hasattr(field, "components"):
        return [Component(*component) for component in field.components()]
    return (Component(field),)


def working_bytes(device: torch.device, memory_mib: float) -> int:
    """Return the bytes that a search may use at once: on a CPU at most `CACHE_MIB`."""
    return int((min(memory_mib, CACHE_MIB) if device.type == "cpu" else memory_mib) * 2**20)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor, aligned; PyTorch is loaded here, so that settings stay light."""
    import torch

    return torch.from_numpy(aligned(array)).to(device)


class MemorySettings(Settings):
    """Settings of searches that compute in batches.

    Attributes:
        memory_mib: Memory bound of the search, MiB.
    """

    memory_mib: float = pydantic.Field(1024, gt=0)


@dataclass(frozen=True)
class Watch:
    """Progress of a search, and the way to stop it."""

    # called with the fraction of a problem that was done; the fractions of n problems add up to n
    advance: Callable[[float], None] = lambda _: None
    # polled during the search; once it returns True, the search returns the best sequences so far,
    # marked as not exact
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class SpaceSize:
    """Size of a problem's space, known before the problem is compiled."""

    actions: int  # A, the number of allowed actions
    choices: tuple[int, ...]  # most actions that each step can have [T]
    free: bool  # whether all sequences of the allowed actions are allowed

    @classmethod
    def of(
        cls, actions: Sequence[int], horizon: int, constraints: Constraints = Constraints()
    ) -> SpaceSize:
        """Count the actions of each step, as far as pinned and forbidden actions restrict them.

        Args:
            actions: Allowed actions.
            horizon: T.
            constraints: Constraints on the sequences.
        """
        usable = len(set(actions) - set(constraints.forbidden))
        pinned = {step for step, _ in constraints.pinned}
        choices = (1 if step in pinned else usable for step in range(1, horizon + 1))
        return cls(len(actions), tuple(choices), not constraints)

    @property
    def leaves(self) -> int:
        """Most sequences."""
        return prod(self.choices)

    @property
    def tree_tokens(self) -> int:
        """Tokens of a walk of the whole tree of prefixes, or of suffixes if these are more."""
        return max(_tree_tokens(self.choices), _tree_tokens(self.choices[::-1]))


def _tree_tokens(choices: Sequence[int]) -> int:
    # one token for the root, two for each node: 1 + 2 Σ_l Π_{i ≤ l} A_i
    return 1 + 2 * sum(prod(choices[: level + 1]) for level in range(len(choices)))


class Search(Settings, ABC):
    """Finds sequences of low score."""

    @abstractmethod
    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return an upper bound of the cost of one problem, known before it is searched.

        Args:
            field: Field that is searched.
            size: Numbers of actions of the problem.
            top_k: Number of sequences asked for.
        """

    @abstractmethod
    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` best sequences of each problem, in the order of the problems.

        Args:
            field: Field that is searched.
            problems: Problems, compiled or not.
            top_k: Number of sequences of each, at least 1.
            watch: Shows progress, and says when to stop.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """


def operations(field: Searchable, cost: SearchCost) -> float:
    """Return the floating-point operations of a search's token forwards."""
    flops = [component.energies.flops_per_token for component in components_of(field)]
    return cost.token_forwards * sum(flops) / len(flops)


def values_of(settings: Settings, kind: type[Settings]) -> dict[str, Any]:
    """Return the values of the settings that `kind` declares."""
    return {name: getattr(settings, name) for name in kind.model_fields}


def observations(spaces: Sequence[Space], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the initial and goal observations of some queries, each [Q, E]."""
    initial = np.stack([space.problem.initial for space in spaces])
    goal = np.stack([space.problem.goal for space in spaces])
    return to_device(initial, device), to_device(goal, device)
