"""The base of all searches, and the settings that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from pydantic import Field

from cefito.search.constraints import Constraints
from cefito.search.energies import Searchable, components_of
from cefito.search.problem import Plans, SearchCost
from cefito.search.space import Problems
from cefito.settings import Settings

__all__ = [
    "MemorySettings",
    "Screening",
    "ScreeningSettings",
    "Search",
    "SpaceSize",
    "Watch",
    "operations",
    "values_of",
]

Screening = Literal["auto", "on", "off"]


class MemorySettings(Settings):
    """Settings of searches that compute in batches.

    Attributes:
        memory_mib: Memory bound of the search, MiB.
    """

    memory_mib: float = Field(1024, gt=0)


class ScreeningSettings(MemorySettings):
    """Settings of searches that can screen; see `cefito.search.screening`.

    Attributes:
        screening: Precision of the first pass, for "exhaustive", "guided" and "auto". "off":
            float32. "on": bfloat16, after which the sequences that may be the best are evaluated in
            float32, which decides. "auto": on if the processor multiplies bfloat16 natively and the
            field is large enough for that to be faster.
    """

    screening: Screening = "auto"


def _ignore(count: float = 1) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """Progress of a search, and the way to stop it."""

    # called with the fraction of a problem that was done; the fractions of n problems add up to n
    advance: Callable[[float], None] = field(default=_ignore)
    # polled during the search; once it returns True, the search returns the best sequences so far,
    # marked as not exact
    stop: Callable[[], bool] = field(default=_never)


@dataclass(frozen=True)
class SpaceSize:
    """Size of a problem's space, known before the problem is compiled."""

    actions: int  # A, the number of allowed actions
    choices: tuple[int, ...]  # most actions that each step can have [T]
    free: bool  # whether all sequences of the allowed actions are allowed

    @classmethod
    def of(
        cls,
        actions: Sequence[int],
        horizon: int,
        constraints: Constraints = Constraints(),
        *,
        free: bool = True,
    ) -> SpaceSize:
        """Count the actions of each step; of the constraints, pinned and forbidden actions count.

        `free` says that nothing else forbids sequences, such as infinite costs.
        """
        usable = len(set(actions) - set(constraints.forbidden))
        pinned = {step for step, _ in constraints.pinned}
        choices = (1 if step in pinned else usable for step in range(1, horizon + 1))
        return cls(len(actions), tuple(choices), free and not constraints)

    @property
    def leaves(self) -> int:
        """Most sequences."""
        return prod(self.choices)

    @property
    def tree_tokens(self) -> int:
        """Tokens of a walk of the whole tree of prefixes, or of suffixes if these are more."""
        return max(_tree_tokens(self.choices), _tree_tokens(self.choices[::-1]))

    def tokens_apart(self, sequences: int) -> int:
        """Most tokens of so many sequences evaluated in any batches: 2T each, and the root."""
        return 1 + 2 * len(self.choices) * sequences


def _tree_tokens(choices: Sequence[int]) -> int:
    # one token for the root, two for each node: 1 + 2 Σ_l Π_{i ≤ l} A_i
    return 1 + 2 * sum(prod(choices[: level + 1]) for level in range(len(choices)))


class Search(Settings, ABC):
    """Finds sequences of low score."""

    @abstractmethod
    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        """Return an upper bound of the cost of one problem, known before it is searched."""

    @abstractmethod
    def search(
        self, field: Searchable, problems: Problems, top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Return the `top_k` best sequences of each problem, in the order of the problems.

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
