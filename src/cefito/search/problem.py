"""The problem that a search is given, compiled or not, and the plans that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.constraints import Constraints
from cefito.search.feasible import Feasible
from cefito.search.step_costs import Cheapest, StepCosts

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The score to minimise: energy / temperature + costs + offset; by default the energy alone."""

    temperature: float = 1.0  # divides the energy
    # costs of sequences besides their energy, over the places of the allowed actions; None for none
    costs: StepCosts | None = None
    offset: float = 0.0  # added to every score, so that scores of different problems compare

    @property
    def pure(self) -> bool:
        """Whether the score is the energy."""
        return self.temperature == 1 and self.costs is None and self.offset == 0

    def score(self, energies: NDArray[np.floating[Any]], costs: Reals | float) -> Reals:
        """Return the scores of sequences with these energies and costs."""
        return energies.astype(np.float64) / self.temperature + costs + self.offset


@dataclass(frozen=True)
class Problem:
    """One query, the actions it may use, and the objective.

    Attributes:
        initial: Initial observation [E].
        goal: Goal observation [E].
        actions: Allowed action ids, ascending, without repeats.
        constraints: Constraints that every plan must satisfy.
        objective: The score to minimise.
        guide: Costs over the places of the allowed actions, low for likely sequences, which guide
            searches that do not look everywhere. None for the objective's costs.
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    actions: tuple[int, ...]
    constraints: Constraints = Constraints()
    objective: Objective = Objective()
    guide: StepCosts | None = None

    def __repr__(self) -> str:
        constraints = self.constraints.summary() or "no constraints"
        return f"Problem({len(self.actions)} actions, {self.initial.size} features, {constraints})"


@dataclass(frozen=True)
class SearchCost:
    """Cost of a search."""

    # tokens that went through the network, over all components of the field; each counted once,
    # however many layers it crossed
    token_forwards: int
    leaves: int  # full sequences whose energy was computed

    def __add__(self, other: SearchCost) -> SearchCost:
        return SearchCost(self.token_forwards + other.token_forwards, self.leaves + other.leaves)


@dataclass(frozen=True)
class Plans:
    """The best sequences of one problem, lowest score first, ties by action ids.

    Attributes:
        actions: Action ids [k, T]; −1 after the last of a plan that is shorter than others.
        energies: Their energies [k].
        scores: Their values under the objective [k]; equal to the energies for the energy alone.
        evaluated: Cost of the search.
        exact: True only if no allowed sequence outside the list can have a lower score than one
            inside; over several tasks, if so for each of those searched.
        tasks: Task that each plan was found for [k], if the planner searches tasks.
        searched: Number of tasks that were searched.
        probabilities: Probability of each plan and of its task, given the observations [k], if the
            planner has a likelihood. They sum to at most one; plans that are not listed have the
            rest.
        task_probabilities: Probability of each plan's task, whatever its sequence [k].
        searched_mass: Share of all probability that the sequences compared hold, as far as that is
            known before they are scored; 1 if probabilities are exact without a search.
        finite: Whether every energy that was met is finite; if not, no sequence can be called best.
        length_probabilities: Probability of each number of steps, if the planner chooses it.
        reply: What a language model replied, for planners that ask one.
        margin: Distance in score from the last plan within which sequences were evaluated in
            float32, if bfloat16 ruled out others; None if none was ruled out.
    """

    actions: Ids
    energies: Reals
    scores: Reals
    evaluated: SearchCost
    exact: bool
    tasks: Ids | None = None
    searched: int = 1
    probabilities: Reals | None = None
    task_probabilities: Reals | None = None
    searched_mass: float | None = None
    finite: bool = True
    length_probabilities: dict[int, float] | None = None
    reply: Any = None
    margin: float | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def best(self, count: int) -> Plans:
        """Return the first of these plans, at most `count`."""
        if count >= len(self):
            return self
        names = ("actions", "energies", "scores", "tasks", "probabilities", "task_probabilities")
        rows = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(self, **{name: value[:count] for name, value in rows.items()})

    @property
    def sequences(self) -> list[Ids]:
        """Action ids of each plan, without padding."""
        return [row[row >= 0] for row in self.actions]

    def __repr__(self) -> str:
        best = f", best {self.sequences[0].tolist()} at {self.scores[0]:.4f}" if len(self) else ""
        proven = "exact" if self.exact else "not exact"
        return f"Plans({len(self)} of {self.actions.shape[1]} actions{best}, {proven})"


class Best:
    """The k best sequences so far, by score and then by rank, the place in the enumeration."""

    def __init__(self, top_k: int) -> None:
        self.top_k, self.finite = top_k, True
        self.scores: Reals = np.zeros(0)
        self.energies: Reals = np.zeros(0)
        self.ranks: Ids = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.ranks)

    def add(
        self, energies: NDArray[np.floating[Any]], ranks: Ids, scores: Reals | None = None
    ) -> None:
        """Add sequences by energies, new ranks and scores (None for the energies), each [M]."""
        # A diverged field, or a query that it cannot take, gives NaN or infinity: such sequences
        # come last, and `finite` reports them.
        self.finite = self.finite and bool(np.isfinite(energies).all())
        energies = np.where(np.isfinite(energies), energies, np.inf)
        values = energies if scores is None else np.where(np.isfinite(scores), scores, np.inf)
        if len(values) > self.top_k:
            kept = values <= np.partition(values, self.top_k - 1)[self.top_k - 1]
            values, energies, ranks = values[kept], energies[kept], ranks[kept]
        all_scores = np.concatenate([self.scores, values])  # float64, as the first part is
        order = np.lexsort((np.concatenate([self.ranks, ranks]), all_scores))[: self.top_k]
        self.scores = all_scores[order]
        self.energies = np.concatenate([self.energies, energies])[order]
        self.ranks = np.concatenate([self.ranks, ranks])[order]

    def plans(self, problem: Problem, horizon: int, cost: SearchCost, *, exact: bool) -> Plans:
        """Decode the ranks into action ids.

        Args:
            problem: Problem that the sequences solve.
            horizon: T.
            cost: What the search took.
            exact: Whether nothing better was left out.
        """
        chosen = places(self.ranks, len(problem.actions), horizon)
        return Plans(
            actions=np.asarray(problem.actions, dtype=np.int64)[chosen],
            energies=self.energies,
            scores=self.scores,
            evaluated=cost,
            exact=exact and self.finite,
            finite=self.finite,
        )


def places(ranks: Ids, size: int, length: int) -> Ids:
    """Return the digits to the base A of the ranks [n] of sequences, as [n, length].

    Args:
        ranks: Ranks [n].
        size: A.
        length: Number of digits.
    """
    return ranks[:, None] // size ** np.arange(length - 1, -1, -1, dtype=np.int64) % size


def ranks(places: Ids, size: int) -> Ids:
    """Return the ranks [n] of sequences of places [n, length]."""
    length = places.shape[1]
    return np.asarray(places @ size ** np.arange(length - 1, -1, -1, dtype=np.int64))


class Space:
    """The sequences of a problem, by the places of their actions among the allowed ones.

    A search accepts it instead of the problem, which is then not compiled again. Problems of the
    same actions may share `feasible`, the compiled constraints.

    Args:
        problem: The problem.
        horizon: Number T of steps.
        feasible: The compiled constraints; None to compile them.

    Raises:
        ConfigError: No allowed action, unsorted or repeated ones, more than 2⁶³ sequences, costs
            of another size or infinite ones, or no sequence that satisfies the constraints.
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
        for name, part in (("objective", self.objective.costs), ("guide", problem.guide)):
            if part is not None and (part.size, part.horizon) != (self.size, horizon):
                raise ConfigError(
                    f"the {name}'s costs are for {part.size} actions and {part.horizon} steps; "
                    f"expected {self.size} and {horizon}."
                )
            if part is not None and not part.finite:
                raise ConfigError(
                    f"the {name}'s costs are not all finite. Forbid sequences by constraints."
                )
        self.feasible = feasible
        if feasible is None and problem.constraints:
            self.feasible = Feasible(problem.constraints, problem.actions, horizon)
        self.free = self.feasible is None

    @property
    def guide(self) -> StepCosts:
        """Costs that say where to look first."""
        return self.problem.guide or self.objective.costs or StepCosts.free(self.horizon, self.size)

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which actions may follow prefixes [n, t], as [n, A]."""
        if self.feasible is None:
            return np.ones((len(prefixes), self.size), dtype=np.bool_)
        return self.feasible.children(prefixes)

    def allows(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which full sequences [n, T] are allowed, as [n]."""
        if self.feasible is None:
            return np.ones(len(sequences), dtype=np.bool_)
        return self.feasible.valid(sequences)

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


Problems = Sequence[Problem | Space]
"""Problems, compiled or not."""


def compiled(problems: Problems, horizon: int, top_k: int) -> list[Space]:
    """Compile all problems before any is searched; spaces are kept.

    Args:
        problems: Problems, or spaces.
        horizon: T.
        top_k: Number of sequences asked for, at least 1.
    """
    if top_k < 1:
        raise ConfigError(f"top_k is {top_k}; expected at least 1.")
    return [
        problem if isinstance(problem, Space) else Space(problem, horizon) for problem in problems
    ]
