"""A problem compiled for a search: what it allows, and what that costs besides the energy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.arrays import aligned
from cefito.errors import ConfigError
from cefito.search.feasible import Feasible
from cefito.search.problem import Problem
from cefito.search.step_costs import Cheapest, StepCosts

__all__ = ["Space", "compiled", "observations"]


class Space:
    """The sequences of a problem, by the places of their actions among the allowed ones.

    A search takes it in the place of the problem, which is then not compiled again.

    Args:
        problem: The problem.
        horizon: T.
        feasible: The problem's constraints compiled, where other problems of the same actions share
            them.

    Attributes:
        free: Whether all sequences of the allowed actions are allowed.
        feasible: The constraints compiled; None where there are none.

    Raises:
        ConfigError: No allowed action, unsorted or repeated ones, more than 2⁶³ sequences, chains
            of another size, or no sequence that satisfies all.
    """

    def __init__(self, problem: Problem, horizon: int, *, feasible: Feasible | None = None) -> None:
        if not problem.actions:
            raise ConfigError("a problem allows no action at all; give at least one.")
        if list(problem.actions) != sorted(set(problem.actions)):
            raise ConfigError(
                f"allowed actions {list(problem.actions)} must be ascending without repeats."
            )
        self.problem, self.horizon, self.size = problem, horizon, len(problem.actions)
        if self.size**horizon > 1 << 63:
            raise ConfigError(
                f"{self.size} actions and {horizon} steps make more sequences than 64 bits can "
                "number. Allow fewer actions or plan fewer steps."
            )
        self.objective = problem.objective
        if not self.objective.temperature > 0:
            raise ConfigError(
                f"temperature {self.objective.temperature} of an objective; expected a positive "
                "number."
            )
        for name, chain in (("objective", self.objective.chain), ("guide", problem.guide)):
            if chain is not None and (chain.size, chain.horizon) != (self.size, horizon):
                raise ConfigError(
                    f"the {name}'s chain is for {chain.size} actions and {chain.horizon} steps; "
                    f"expected {self.size} and {horizon}."
                )
        self.feasible = feasible
        if feasible is None and problem.constraints:
            self.feasible = Feasible(problem.constraints, problem.actions, horizon)
        forbidding = self.objective.chain is not None and not self.objective.chain.finite
        self._ahead = self.objective.chain.to_go() if forbidding and self.objective.chain else None
        self.free = self.feasible is None and not forbidding
        if forbidding and not len(self.cheapest(StepCosts.free(horizon, self.size), 1).costs):
            raise ConfigError(
                "no sequence of the allowed actions satisfies the constraints and has a finite "
                "cost. Allow more transitions or drop a constraint."
            )

    @property
    def guide(self) -> StepCosts:
        """Where to look first."""
        return self.problem.guide or self.objective.chain or StepCosts.free(self.horizon, self.size)

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which actions may follow prefixes [n, t], as [n, A]."""
        allowed = np.ones((len(prefixes), self.size), dtype=np.bool_)
        if self.feasible is not None:
            allowed &= self.feasible.children(prefixes)
        if self._ahead is not None and self.objective.chain is not None:
            after = self._ahead[prefixes.shape[1] + 1]
            finite = np.isfinite(after[prefixes[:, -1]] if after.ndim == 2 else after)
            allowed &= np.isfinite(self.objective.chain.children(prefixes)) & finite
        return allowed

    def allows(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which full sequences [n, T] are allowed, as [n]."""
        allowed = np.ones(len(sequences), dtype=np.bool_)
        if self.feasible is not None:
            allowed &= self.feasible.valid(sequences)
        if self._ahead is not None and self.objective.chain is not None:
            allowed &= np.isfinite(self.objective.chain.cost(sequences))
        return allowed

    def cheapest(self, guide: StepCosts, count: int) -> Cheapest:
        """The `count` allowed sequences that are cheapest under a guide."""
        return guide.cheapest(count, None if self.free else self.children)

    def scores(self, energies: Tensor, sequences: NDArray[np.int64]) -> Tensor | None:
        """Scores of allowed sequences [n, T] of energies [n]; None where these are the scores."""
        if self.objective.pure:
            return None
        costs = 0.0 if self.objective.chain is None else self.objective.chain.cost(sequences)
        return torch.from_numpy(self.objective.score(energies.cpu().numpy(), costs))


def observations(spaces: Sequence[Space], device: torch.device) -> tuple[Tensor, Tensor]:
    """Initial and goal observations of some queries, each [Q, E]."""
    initial = aligned(np.stack([space.problem.initial for space in spaces]))
    goal = aligned(np.stack([space.problem.goal for space in spaces]))
    return torch.from_numpy(initial).to(device), torch.from_numpy(goal).to(device)


def compiled(problems: Sequence[Problem | Space], horizon: int, top_k: int) -> list[Space]:
    """Compile all problems before any is searched; those that are compiled already stay.

    Raises:
        ConfigError: top_k below 1, or a problem that no search could solve.
    """
    if top_k < 1:
        raise ConfigError(f"top_k is {top_k}; expected at least 1.")
    return [
        problem if isinstance(problem, Space) else Space(problem, horizon) for problem in problems
    ]
