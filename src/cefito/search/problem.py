"""The seam between fields and searches: what a search is given and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.errors import ConfigError

__all__ = ["Best", "Effort", "Field", "IncrementalEnergies", "Plans", "Problem", "Search", "check_problems"]


class PrefixState(Protocol):
    """Prefixes of one length, of one or several queries; opaque to a search but for this."""

    def __len__(self) -> int: ...

    def narrow(self: StateT, first: int, count: int, /) -> StateT:
        """Some of the prefixes."""


StateT = TypeVar("StateT", bound=PrefixState)


class Field(Protocol):
    """Gives the energies of full sequences."""

    @property
    def horizon(self) -> int:
        """T, the number of actions of a full sequence."""

    @property
    def device(self) -> torch.device:
        """Where observations and actions are expected."""

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor, /) -> Tensor:
        """Energies [B] of sequences [B, T] between observations [B, E]."""


class IncrementalEnergies(Field, Protocol[StateT]):
    """A field that also walks the tree of prefixes; see `cefito.field.IncrementalField` for the shapes."""

    def root(self, initial: Tensor, goal: Tensor, /) -> StateT:
        """The empty prefixes of Q queries [Q, E]."""

    def extend(self, prefixes: StateT, actions: Tensor, /) -> StateT:
        """Every prefix continued by every action [A], children of one parent together."""

    def leaf_energy(self, prefixes: StateT, actions: Tensor, /) -> Tensor:
        """Energies [n, A] of the sequences that end n prefixes by each action."""

    def bytes_per_child(self, depth: int, *, leaf: bool) -> int:
        """Memory that one child of a prefix of this depth takes."""


@dataclass(frozen=True)
class Problem:
    """One query and the actions it may use.

    Attributes:
        initial: Initial observation [E].
        goal: Goal observation [E].
        actions: Allowed action ids, ascending, without repeats.
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    actions: tuple[int, ...]


@dataclass(frozen=True)
class Effort:
    """What a search cost.

    Attributes:
        token_forwards: Tokens that went through the network, each counted once however many layers it crossed.
        leaves: Full sequences whose energy was computed.
    """

    token_forwards: int
    leaves: int


@dataclass(frozen=True)
class Plans:
    """The best sequences of one problem, lowest energy first, ties by action ids.

    Attributes:
        actions: Action ids [k, T].
        energies: Their energies [k].
        evaluated: What the search cost.
        exact: True only if no allowed sequence outside the list can have a lower energy than one inside.
    """

    actions: NDArray[np.int64]
    energies: NDArray[np.float64]
    evaluated: Effort
    exact: bool

    def __len__(self) -> int:
        return len(self.actions)


class Search(Protocol):
    """Finds sequences of low energy."""

    def search(self, field: Any, problems: Sequence[Problem], top_k: int) -> list[Plans]:
        """Solve each problem; the k best sequences of each."""


def check_problems(problems: Sequence[Problem], top_k: int) -> None:
    """Refuse problems that no search could solve.

    Raises:
        ConfigError: No allowed action, unsorted or repeated ones, or top_k below 1.
    """
    if top_k < 1:
        raise ConfigError(f"top_k is {top_k}; expected at least 1.")
    for problem in problems:
        if not problem.actions:
            raise ConfigError("a problem allows no action at all; give at least one.")
        if list(problem.actions) != sorted(set(problem.actions)):
            raise ConfigError(f"allowed actions {list(problem.actions)} must be ascending without repeats.")


class Best:
    """The k best leaves met so far, by energy, then by rank (the place in the enumeration by action ids)."""

    def __init__(self, top_k: int) -> None:
        self.top_k = top_k
        self.energies = torch.empty(0)
        self.ranks = torch.empty(0, dtype=torch.int64)

    def add(self, energies: Tensor, first_rank: int) -> None:
        """Take in the energies [M] of leaves whose ranks follow each other from `first_rank`."""
        energies = energies.nan_to_num(nan=torch.inf, posinf=torch.inf)  # of a field that diverged in training
        if len(energies) > self.top_k:
            bound = energies.topk(self.top_k, largest=False).values[-1]
            index = (energies <= bound).nonzero().flatten()  # ascending, so that the stable sort below keeps ties by rank
        else:
            index = torch.arange(len(energies), device=energies.device)
        merged = torch.cat([self.energies.to(energies.device), energies[index]])
        ranks = torch.cat([self.ranks.to(energies.device), index + first_rank])
        order = merged.argsort(stable=True)[:self.top_k]
        self.energies, self.ranks = merged[order], ranks[order]

    def plans(self, problem: Problem, horizon: int, effort: Effort, *, exact: bool) -> Plans:
        """Decode the ranks into action ids."""
        size = len(problem.actions)
        ranks = self.ranks.cpu().numpy()
        digits = np.stack([ranks // size ** (horizon - 1 - level) % size for level in range(horizon)], axis=1)
        return Plans(actions=np.asarray(problem.actions, dtype=np.int64)[digits],
                     energies=self.energies.double().cpu().numpy(), evaluated=effort, exact=exact)
