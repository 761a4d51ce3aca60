"""The seam between fields and searches: what a search is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.notebook import Folded, card
from cefito.search.constraints import Constraints
from cefito.search.step_costs import StepCosts

if TYPE_CHECKING:
    from cefito.search.space import Space

__all__ = [
    "Best",
    "Field",
    "IncrementalEnergies",
    "Objective",
    "Plans",
    "Problem",
    "Reply",
    "Search",
    "SearchCost",
    "Watch",
    "places",
    "ranks",
    "working_bytes",
]

CACHE_MIB = 64
"""Working memory of a search on a CPU.

Enough for large matrix products, little enough not to leave the caches far behind.
"""


def working_bytes(device: torch.device, memory_mib: float) -> int:
    """What a search may have in work at once: its memory bound, on a CPU at most `CACHE_MIB`."""
    return int((min(memory_mib, CACHE_MIB) if device.type == "cpu" else memory_mib) * 2**20)


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
    """A field that also walks the tree of prefixes; see `cefito.field.IncrementalField`."""

    def root(self, initial: Tensor, goal: Tensor, /) -> StateT:
        """The empty prefixes of Q queries [Q, E]."""

    def extend(self, prefixes: StateT, actions: Tensor, /) -> StateT:
        """Every prefix continued by every action [A], children of one parent together."""

    def leaf_energy(self, prefixes: StateT, actions: Tensor, /) -> Tensor:
        """Energies [n, A] of the sequences that end n prefixes by each action."""

    def extend_each(self, prefixes: StateT, parents: Tensor, actions: Tensor, /) -> StateT:
        """Chosen prefixes [m], each continued by an action of its own [m]."""

    def leaf_energy_each(self, prefixes: StateT, parents: Tensor, actions: Tensor, /) -> Tensor:
        """Energies [m] of sequences that end chosen prefixes [m] by actions of their own [m]."""

    def tree_energies(self, roots: StateT, levels: Sequence[tuple[Tensor, Tensor]], /) -> Tensor:
        """Energies of sequences all at once; each level's parents (places above) and actions."""

    def bytes_per_child(self, depth: int, *, leaf: bool, each: bool = False) -> int:
        """Memory that one child of a prefix of this depth takes; `each` if by `extend_each`."""

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations that one token forward costs."""

    def coarse(self) -> IncrementalEnergies[Any]:
        """The same energies in lower precision."""

    @property
    def coarse_pays(self) -> bool:
        """Whether lower precision is so much quicker that it pays to look twice."""


@dataclass(frozen=True)
class Objective:
    """What is minimised: energy / temperature + cost of the chain + offset.

    The default is the paper's, the energy alone.

    Attributes:
        temperature: Divides the energy.
        chain: Costs of sequences besides their energy, over the places of the allowed actions;
            infinite where a sequence is not allowed. None costs nothing.
        offset: Added to every score; tells hypotheses of different problems apart.
    """

    temperature: float = 1.0
    chain: StepCosts | None = None
    offset: float = 0.0

    @property
    def pure(self) -> bool:
        """Whether the score is the energy."""
        return self.temperature == 1 and self.chain is None and self.offset == 0

    def score(
        self, energies: NDArray[np.floating[Any]], costs: NDArray[np.float64] | float
    ) -> NDArray[np.float64]:
        """Scores of sequences with these energies and costs of the chain."""
        return energies.astype(np.float64) / self.temperature + costs + self.offset


@dataclass(frozen=True)
class Problem:
    """One query, the actions it may use and what makes a sequence good.

    Attributes:
        initial: Initial observation [E].
        goal: Goal observation [E].
        actions: Allowed action ids, ascending, without repeats.
        constraints: What every plan must satisfy.
        objective: What is minimised.
        guide: Where to look first, for searches that do not look everywhere: costs over the places
            of the allowed actions, low where sequences are likely. None takes the objective's
            chain.
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    actions: tuple[int, ...]
    constraints: Constraints = Constraints()
    objective: Objective = Objective()
    guide: StepCosts | None = None

    def __repr__(self) -> str:
        size, asked = len(self.actions), self.constraints.summary() or "nothing"
        return f"Problem({size} actions, {self.initial.size} features, {asked} asked for)"


@dataclass(frozen=True)
class SearchCost:
    """What a search cost.

    Attributes:
        token_forwards: Tokens that went through the network, each counted once however many layers
            it crossed.
        leaves: Full sequences whose energy was computed.
    """

    token_forwards: int
    leaves: int

    def __add__(self, other: SearchCost) -> SearchCost:
        return SearchCost(self.token_forwards + other.token_forwards, self.leaves + other.leaves)


@dataclass(frozen=True)
class Reply:
    """How a model outside of the library answered a query, of planners that ask one.

    Attributes:
        outcome: "kept" where its first answer was valid; "repaired" where a second one was, or
            plans could be made of an invalid one; "replaced" where other plans stand for it;
            "unasked" where it was stopped before.
        model: Name of the model that was asked for.
        host: Server that was asked.
        key: Digest of the request; equal ones were made once.
        served: The model that answered, as the server calls it.
        asked: When the answer was given, UTC, ISO 8601.
        requests: Requests that the answer took.
        prompt_tokens: Tokens that it read.
        completion_tokens: Tokens that it wrote.
    """

    outcome: Literal["kept", "repaired", "replaced", "unasked"]
    model: str
    host: str
    key: str = ""
    served: str = ""
    asked: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Plans:
    """The best sequences of one problem, lowest score first, ties by action ids.

    Attributes:
        actions: Action ids [k, T].
        energies: Their energies [k].
        scores: Their values under the objective [k]; the energies where the objective is the energy
            alone.
        evaluated: What the search cost.
        exact: True only if no allowed sequence outside the list can have a lower score than one
            inside; after screening in lower precision, as far as its margin holds; over several
            tasks, if so for each of those searched.
        tasks: The task that each plan was found for [k], where a planner searches tasks.
        searched: Number of tasks that a planner searched.
        probabilities: Probability of each plan, and of the task it was found for, given the
            observations [k], where a planner has a likelihood. They add up to at most one: what is
            not listed has the rest.
        task_probabilities: Probability of each plan's task, whatever its sequence [k].
        searched_mass: Share of all probability that the sequences compared hold, as far as that is
            known before they are scored; 1 where probabilities are exact without a search.
        finite: Whether every energy that was met is a finite number; otherwise nothing can be said
            of which is lowest.
        reply: How the model answered, of planners that ask one outside of the library.
    """

    actions: NDArray[np.int64]
    energies: NDArray[np.float64]
    scores: NDArray[np.float64]
    evaluated: SearchCost
    exact: bool
    tasks: NDArray[np.int64] | None = None
    searched: int = 1
    probabilities: NDArray[np.float64] | None = None
    task_probabilities: NDArray[np.float64] | None = None
    searched_mass: float | None = None
    finite: bool = True
    reply: Reply | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        best = f", best {self.actions[0].tolist()} at {self.scores[0]:.4f}" if len(self) else ""
        proven = "exact" if self.exact else "not exact"
        return f"Plans({len(self)} of {self.actions.shape[1]} actions{best}, {proven})"

    def _repr_html_(self) -> str:
        columns: dict[str, NDArray[Any] | None] = {
            "score": self.scores,
            "energy": self.energies,
            "probability": self.probabilities,
            "task": self.tasks,
        }
        known = {name: column for name, column in columns.items() if column is not None}
        rows = [
            [
                place + 1,
                " → ".join(map(str, actions)),
                *(f"{column[place]:.6g}" for column in known.values()),
            ]
            for place, actions in enumerate(self.actions.tolist())
        ]
        effort = self.evaluated
        return card(
            f"{len(self)} plans of {self.actions.shape[1]} actions",
            {
                "exact": "yes" if self.exact else "no",
                "token forwards": effort.token_forwards,
                "scored sequences": effort.leaves,
            },
            [Folded("Plans", ("", "actions", *known), rows, open=True)],
        )


def _ignore(count: float = 1) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """What a search tells while it works, and how it is told to stop.

    Attributes:
        advance: Called with the part of a problem that was done; the parts of n problems add up to
            n.
        stop: Asked now and then; once it says so, the search returns the best it has met, marked as
            not exact.
    """

    advance: Callable[[float], None] = field(default=_ignore)
    stop: Callable[[], bool] = field(default=_never)


class Search(Protocol):
    """Finds sequences of low score."""

    def search(
        self, field: Any, problems: Sequence[Problem | Space], top_k: int, watch: Watch = Watch()
    ) -> list[Plans]:
        """Solve each problem; the k best sequences of each."""


class Best:
    """The k best sequences met so far, by score and then by rank.

    The rank of a sequence is its place in the enumeration by action ids.
    """

    def __init__(self, top_k: int) -> None:
        self.top_k, self.finite = top_k, True
        self.scores = torch.empty(0, dtype=torch.float64)
        self.energies = torch.empty(0, dtype=torch.float64)
        self.ranks = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.ranks)

    def add(self, energies: Tensor, ranks: Tensor, scores: Tensor | None = None) -> None:
        """Take in sequences.

        Args:
            energies: Their energies [M].
            ranks: Their ranks [M], all different and none taken in before.
            scores: Their scores [M]; None where these are the energies.
        """
        # A field that diverged, or a query that it cannot take, gives no numbers; such sequences
        # come last, and whoever asked is told.
        self.finite = self.finite and bool(energies.isfinite().all())
        energies = energies.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
        scores = (
            energies
            if scores is None
            else scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
        )
        if len(scores) > self.top_k:
            bound = scores.topk(self.top_k, largest=False).values[-1]
            kept = (scores <= bound).nonzero().flatten()
            scores, energies, ranks = scores[kept], energies[kept], ranks[kept]
        scores, energies, ranks = (
            torch.cat([old, new.to(old)])
            for old, new in ((self.scores, scores), (self.energies, energies), (self.ranks, ranks))
        )
        order = ranks.argsort(stable=True)
        order = order[scores[order].argsort(stable=True)][: self.top_k]
        self.scores, self.energies, self.ranks = scores[order], energies[order], ranks[order]

    def plans(self, problem: Problem, horizon: int, effort: SearchCost, *, exact: bool) -> Plans:
        """Decode the ranks into action ids."""
        chosen = places(self.ranks.numpy(), len(problem.actions), horizon)
        return Plans(
            actions=np.asarray(problem.actions, dtype=np.int64)[chosen],
            energies=self.energies.numpy(),
            scores=self.scores.numpy(),
            evaluated=effort,
            exact=exact and self.finite,
            finite=self.finite,
        )


def places(ranks: NDArray[np.int64], size: int, length: int) -> NDArray[np.int64]:
    """The digits to the base A of the ranks [n] of sequences of some length, as [n, length]."""
    return ranks[:, None] // size ** np.arange(length - 1, -1, -1, dtype=np.int64) % size


def ranks(places: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ranks [n] of sequences of places [n, length]."""
    result: NDArray[np.int64] = places @ size ** np.arange(
        places.shape[1] - 1, -1, -1, dtype=np.int64
    )
    return result
