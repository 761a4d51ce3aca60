"""A problem compiled for a search: what it allows, and what that costs besides the energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.energies import to_device
from cefito.search.feasible import Feasible
from cefito.search.problem import Problem
from cefito.search.step_costs import Cheapest, StepCosts

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Problems", "Space", "compiled", "observations"]


class Space:
    """The sequences of a problem, by the places of their actions among the allowed ones.

    A search accepts it instead of the problem, which is then not compiled again. Problems of the
    same actions may share `feasible`, the compiled constraints.

    Raises:
        ConfigError: No allowed action, unsorted or repeated ones, more than 2⁶³ sequences, costs
            of another size, or no sequence that satisfies all.
    """

    # free: whether all sequences of the allowed actions are allowed

    def __init__(self, problem: Problem, horizon: int, *, feasible: Feasible | None = None) -> None:
        if not problem.actions or list(problem.actions) != sorted(set(problem.actions)):
            raise ConfigError(
                f"allowed actions {list(problem.actions)}: expected one or more, ascending, "
                "without repeats."
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
        costs = self.objective.costs
        for name, part in (("objective", costs), ("guide", problem.guide)):
            if part is not None and (part.size, part.horizon) != (self.size, horizon):
                raise ConfigError(
                    f"the {name}'s costs are for {part.size} actions and {part.horizon} steps; "
                    f"expected {self.size} and {horizon}."
                )
        self.feasible = feasible
        if feasible is None and problem.constraints:
            self.feasible = Feasible(problem.constraints, problem.actions, horizon)
        forbidding = costs is not None and not costs.finite
        self._ahead = costs.to_go() if forbidding and costs else None
        self.free = self.feasible is None and not forbidding
        if forbidding and not len(self.cheapest(StepCosts.free(horizon, self.size), 1).costs):
            raise ConfigError(
                "no sequence of the allowed actions satisfies the constraints and has a finite "
                "cost. Allow more transitions or drop a constraint."
            )

    @property
    def guide(self) -> StepCosts:
        """Costs that say where to look first."""
        return self.problem.guide or self.objective.costs or StepCosts.free(self.horizon, self.size)

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which actions may follow prefixes [n, t], as [n, A]."""
        allowed = np.ones((len(prefixes), self.size), dtype=np.bool_)
        if self.feasible is not None:
            allowed &= self.feasible.children(prefixes)
        if self._ahead is not None and self.objective.costs is not None:
            after = self._ahead[prefixes.shape[1] + 1]
            finite = np.isfinite(after[prefixes[:, -1]] if after.ndim == 2 else after)
            allowed &= np.isfinite(self.objective.costs.children(prefixes)) & finite
        return allowed

    def allows(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which full sequences [n, T] are allowed, as [n]."""
        allowed = np.ones(len(sequences), dtype=np.bool_)
        if self.feasible is not None:
            allowed &= self.feasible.valid(sequences)
        if self._ahead is not None and self.objective.costs is not None:
            allowed &= np.isfinite(self.objective.costs.cost(sequences))
        return allowed

    def cheapest(self, guide: StepCosts, count: int) -> Cheapest:
        """Return the `count` allowed sequences that are cheapest under a guide."""
        return guide.cheapest(count, None if self.free else self.children)

    def scores(
        self, energies: NDArray[np.floating[Any]], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """Return the scores of allowed sequences [n, T]; None if these are the energies [n]."""
        if self.objective.pure:
            return None
        costs = 0.0 if self.objective.costs is None else self.objective.costs.cost(sequences)
        return self.objective.score(energies, costs)


def observations(spaces: Sequence[Space], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the initial and goal observations of some queries, each [Q, E]."""
    initial = np.stack([space.problem.initial for space in spaces])
    goal = np.stack([space.problem.goal for space in spaces])
    return to_device(initial, device), to_device(goal, device)


Problems = Sequence[Problem | Space]
"""Problems, compiled or not."""


def compiled(problems: Problems, horizon: int, top_k: int) -> list[Space]:
    """Compile all problems before any is searched; spaces are kept."""
    if top_k < 1:
        raise ConfigError(f"top_k is {top_k}; expected at least 1.")
    return [
        problem if isinstance(problem, Space) else Space(problem, horizon) for problem in problems
    ]
