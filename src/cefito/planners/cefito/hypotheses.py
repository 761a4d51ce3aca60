"""The objective and its hypotheses: tasks that a query may belong to, a search problem for each.

Probabilities of plans are shares of exp(−score), since the objective is log-linear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import ActionSpace
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.planners.chain.model import ChainEvidence, ChainModel
from cefito.planners.shared.task_model import TaskModel
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.feasible import Feasible
from cefito.search.prior import NGramPrior
from cefito.search.problem import Objective, Plans, Problem, SearchCost, Space
from cefito.search.step_costs import CostBatch, StepCosts


@dataclass(frozen=True)
class Weights:
    """Weights of the two terms of the score, of which the lowest is best.

        score = energy · E(a) − chain · log q(c, a | observations)

    q(c, a) is the probability of the task times the chain's probability of the sequence within it.
    """

    energy: float
    chain: float


ENERGY = Weights(energy=1.0, chain=0.0)
"""The energy alone (paper, Eq. 4)."""
CHAIN = Weights(energy=0.0, chain=1.0)
"""The chain alone, as it was calibrated."""


@dataclass(frozen=True)
class Hypothesis:
    """A task that a query may belong to."""

    query: int
    task: int
    log_probability: float  # of the task given the observations; 0 if the task is given


@dataclass(frozen=True)
class Posterior:
    """Turns the scores of the sequences found into probabilities.

        p(plan) = M · exp(−score) / Σ_found exp(−score),    M = Σ_found q(c, a) / Σ q(c, a)

    M is the probability of all sequences found together under the chain, so that sequences and
    tasks that were not searched keep their probability under it. Under constraints the share of the
    allowed sequences that were found is not known; M is then 1, and plans are only compared with
    each other.
    """

    # least number of sequences of each task that are compared if probabilities need a search
    COMPARED: ClassVar[int] = 64

    evidence: ChainEvidence  # the chain of some queries
    log_tasks: NDArray[np.float64]  # log-probability of each task, −∞ if another is given, [N, C]
    constrained: bool

    def weighed(
        self, query: int, plans: Plans, by_hypothesis: Sequence[tuple[Hypothesis, Plans]]
    ) -> Plans:
        """Return the best plans of a query with their probabilities.

        Args:
            query: Row of the query.
            plans: Its best plans.
            by_hypothesis: All plans that were found, by hypothesis.
        """
        scores = (
            np.concatenate([task_plans.scores for _, task_plans in by_hypothesis])
            if by_hypothesis
            else np.zeros(0)
        )
        if not np.isfinite(scores).any():  # nothing found, or a field that diverged
            return replace(plans, probabilities=np.zeros(len(plans)), searched_mass=0.0)
        mass = None if self.constrained else self._mass(query, by_hypothesis)
        # exp(−score) / Σ_found exp(−score), [k]
        shares = np.exp(-plans.scores - np.logaddexp.reduce(-scores))
        probabilities = shares if mass is None else mass * shares
        return replace(plans, probabilities=probabilities, searched_mass=mass)

    def _mass(self, query: int, by_hypothesis: Sequence[tuple[Hypothesis, Plans]]) -> float:
        tasks = np.repeat(
            np.array([hypothesis.task for hypothesis, _ in by_hypothesis], dtype=np.int64),
            [len(plans) for _, plans in by_hypothesis],
        )
        sequences = np.concatenate([plans.actions for _, plans in by_hypothesis])
        # log q(c, a) = log q(a | c) + log p(c) of the sequences found
        logs = self.evidence.log_sequences(query, tasks, sequences) + self.log_tasks[query, tasks]
        # of all tasks that have sequences
        log_possible = self.log_tasks[query, np.isfinite(self.evidence.sums[query])]
        return min(
            1.0, float(np.exp(np.logaddexp.reduce(logs) - np.logaddexp.reduce(log_possible)))
        )


_PLAUSIBLE = np.log(1e-3)
"""Least log-probability of a task that is searched besides the likeliest."""
# most problems searched at once; fewer if they have more candidates, so that progress is visible,
# or if the prior's tables of their tasks take more MiB
TOGETHER, _CANDIDATES, _TABLES_MIB = 64, 500_000, 64


@dataclass(frozen=True)
class Hypotheses:
    """Makes the problems of queries."""

    space: ActionSpace
    prior: NGramPrior  # over sequences
    chain: ChainModel | None  # None for an imported run
    task_model: TaskModel | None = None  # None if there is none
    by_chain: bool = True  # whether the chain says the tasks

    def log_tasks(
        self, queries: Queries, evidence: ChainEvidence | None = None
    ) -> NDArray[np.float64]:
        """Return log p of each task [N, C]; 0 and −∞ if the task is given; arguments as `of`."""
        if queries.tasks is not None:
            one_hot = np.arange(len(self.space.actions)) == queries.tasks[:, None]
            return np.where(one_hot, 0.0, -np.inf)
        if not self.by_chain:
            if self.task_model is None:
                raise RunError(
                    "this run has no task classifier, so tasks must be given. Or import it again "
                    "with one (cefito import-checkpoint --classifier).",
                    setting="task",
                )
            return self.task_model.log_probabilities(queries).astype(np.float64)
        if evidence is None and self.chain is None:
            raise RunError(
                "this run was imported without a chain to predict tasks by.", setting="task_model"
            )
        return (evidence or self.chain.evidence(queries)).log_tasks()  # type: ignore[union-attr]

    def of(
        self, queries: Queries, tasks: int, evidence: ChainEvidence | None = None
    ) -> list[Hypothesis]:
        """Return the likeliest tasks of each query, likeliest first, or the given one.

        Args:
            queries: N queries.
            tasks: Number of tasks of each.
            evidence: What the chain says of the queries, if it is there already.
        """
        logs = self.log_tasks(queries, evidence)
        ranked, kept = likely(logs, 1 if queries.tasks is not None else tasks)
        return [
            Hypothesis(query=int(row), task=int(task), log_probability=float(logs[row, task]))
            for row, task in zip(kept.nonzero()[0], ranked[kept], strict=True)
        ]

    def problems(
        self,
        queries: Queries,
        hypotheses: Sequence[Hypothesis],
        evidence: ChainEvidence | None,
        *,
        horizon: int,
        weights: Weights,
        constraints: Constraints = UNCONSTRAINED,
    ) -> list[Problem]:
        """Return the problem of each hypothesis.

        The guide is the chain; for the energy alone the prior, since sequences of low energy need
        not be likely under the chain.

        Args:
            queries: N queries.
            hypotheses: Their tasks.
            evidence: What the chain says of the queries; None if there is no chain.
            horizon: T.
            weights: Weights of energy and chain in the objective.
            constraints: Constraints on the plans.
        """
        by_task: dict[int, list[int]] = defaultdict(list)  # places of the hypotheses of a task
        for place, hypothesis in enumerate(hypotheses):
            by_task[hypothesis.task].append(place)
        problems: dict[int, Problem] = {}
        for task, members in by_task.items():
            actions = self.space.actions[task]
            rows = np.array([hypotheses[place].query for place in members])
            if weights.chain and evidence is not None:
                costs = _chain_costs(evidence, rows, task, len(actions), weights.chain)
            else:
                nothing = np.zeros((len(rows), horizon, len(actions)))
                costs = CostBatch(nothing, self.prior.costs(task, horizon))
            for row, place in enumerate(members):
                hypothesis, query_costs = hypotheses[place], costs.row(row)
                problems[place] = Problem(
                    initial=queries.initial[hypothesis.query],
                    goal=queries.goal[hypothesis.query],
                    actions=actions,
                    constraints=constraints,
                    objective=Objective(
                        temperature=1 / max(weights.energy, 1e-9),
                        costs=query_costs if weights.chain else None,
                        offset=-weights.chain * hypothesis.log_probability,
                    ),
                    guide=query_costs,
                )
        return [problems[place] for place in range(len(hypotheses))]


def likely(
    log_tasks: NDArray[np.float64],  # log-probability of each task [N, C]
    tasks: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the n likeliest tasks of each query [N, n], and whether each is to be searched."""
    ranked = np.argsort(-log_tasks, axis=1, kind="stable")[:, :tasks]
    kept = np.take_along_axis(log_tasks, ranked, axis=1) >= _PLAUSIBLE
    kept[:, :1] = True
    return ranked, kept


def merged(by_hypothesis: Sequence[tuple[Hypothesis, Plans]], top_k: int) -> Plans:
    """Return the best plans over the hypotheses of one query, each sequence once."""
    actions = np.concatenate([plans.actions for _, plans in by_hypothesis])
    energies, scores = (
        np.concatenate(parts)
        for parts in zip(
            *((plans.energies, plans.scores) for _, plans in by_hypothesis), strict=True
        )
    )
    tasks = np.repeat(
        [hypothesis.task for hypothesis, _ in by_hypothesis],
        [len(plans) for _, plans in by_hypothesis],
    )
    log_tasks = np.array([hypothesis.log_probability for hypothesis, _ in by_hypothesis])
    order = np.lexsort((*actions.T[::-1], scores))
    kept: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for row in order.tolist():
        if len(kept) < top_k and (sequence := tuple(actions[row].tolist())) not in seen:
            seen.add(sequence)
            kept.append(row)
    margins = [plans.margin for _, plans in by_hypothesis if plans.margin is not None]
    effort = sum((plans.evaluated for _, plans in by_hypothesis), SearchCost(0, 0))
    return Plans(
        actions=actions[kept],
        energies=energies[kept],
        scores=scores[kept],
        evaluated=effort,
        exact=all(plans.exact for _, plans in by_hypothesis),
        margin=max(margins, default=None),
        tasks=tasks[kept],
        searched=len(by_hypothesis),
        task_probabilities=np.repeat(np.exp(log_tasks), [len(plans) for _, plans in by_hypothesis])[
            kept
        ],
    )


def no_plans(horizon: int) -> Plans:
    """Return the plans of a query that was not reached before the search was stopped."""
    nothing = np.zeros(0)
    return Plans(
        actions=np.zeros((0, horizon), dtype=np.int64),
        energies=nothing,
        scores=nothing,
        evaluated=SearchCost(0, 0),
        exact=False,
        tasks=np.zeros(0, dtype=np.int64),
        searched=0,
        task_probabilities=nothing,
    )


def _chain_costs(
    evidence: ChainEvidence, queries: NDArray[np.int64], task: int, size: int, weight: float
) -> CostBatch:
    """Return −weight · log q(a | c, observations) of queries [B], over the task's A actions."""
    scores, rows = evidence.scores, torch.from_numpy(queries).to(evidence.scores.emissions.device)
    states = scores.states.grid[task, :size]
    # −log q(a | c) = −Σ_t e_t(a_t) − Σ_t w(a_t−1, a_t) + log Σ exp(score) of the task
    costs = -scores.emissions[rows[:, None], :, states].transpose(1, 2).double().cpu().numpy()
    costs[:, 0] += evidence.sums[queries, task][:, None]  # [B, T, A]
    transitions = -weight * scores.transitions[task, :size, :size].double().cpu().numpy()
    shared = StepCosts(costs=(np.zeros(size), *[transitions] * (scores.horizon - 1)))
    return CostBatch(weight * costs, shared)


class TaskSpaces:
    """Compiles the problems of queries; constraints once for each task.

    Args:
        space: Actions of each task.
        taxonomy: Tasks and actions.
        horizon: Number T of steps.
        constraints: Constraints on the plans.
    """

    def __init__(
        self,
        *,
        space: ActionSpace,
        taxonomy: Taxonomy,
        horizon: int,
        constraints: Constraints = UNCONSTRAINED,
    ) -> None:
        self.space, self.taxonomy = space, taxonomy
        self.horizon, self.constraints = horizon, constraints
        self._tasks: dict[int, Feasible | ConfigError | None] = {}

    def possible(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return the hypotheses whose task has a sequence that satisfies the constraints."""
        kept = [
            hypothesis
            for hypothesis in hypotheses
            if not isinstance(self._task(hypothesis.task), ConfigError)
        ]
        left = {hypothesis.query for hypothesis in kept}
        for hypothesis in hypotheses:
            refusal = self._task(hypothesis.task)
            if hypothesis.query not in left and isinstance(refusal, ConfigError):
                name = self.taxonomy.tasks[hypothesis.task].name
                raise ConfigError(f"task {hypothesis.task} ('{name}'): {refusal}")
        return kept

    def compiled(
        self, hypotheses: Sequence[Hypothesis], problems: Sequence[Problem]
    ) -> list[Space]:
        """Compile the problems of possible hypotheses."""
        spaces = []
        for hypothesis, problem in zip(hypotheses, problems, strict=True):
            feasible = self._task(hypothesis.task)
            assert not isinstance(feasible, ConfigError)
            spaces.append(Space(problem, self.horizon, feasible=feasible))
        return spaces

    def _task(self, task: int) -> Feasible | ConfigError | None:
        """Return the compiled constraints of a task, None without any, or its refusal."""
        if task not in self._tasks:
            nowhere, actions = np.zeros(0, dtype=np.float32), self.space.actions[task]
            problem = Problem(nowhere, nowhere, actions, self.constraints)
            try:
                self._tasks[task] = Space(problem, self.horizon).feasible
            except ConfigError as refusal:
                self._tasks[task] = refusal
        return self._tasks[task]


def searched_together(
    hypotheses: Sequence[Hypothesis], space: ActionSpace, prior: NGramPrior, horizon: int
) -> int:
    """Return how many of these, ordered by task, are searched together.

    Args:
        hypotheses: Tasks of queries, ordered by task.
        space: Actions that each task allows.
        prior: Prior, for the size of its tables.
        horizon: T.
    """
    sizes = {
        hypothesis.task: len(space.actions[hypothesis.task]) for hypothesis in hypotheses[:TOGETHER]
    }
    most: int = max(1, min(TOGETHER, _CANDIDATES // sizes[hypotheses[0].task] ** horizon))
    room = _TABLES_MIB * 2**20
    for task, size in list(sizes.items())[1:]:
        room -= 8 * size**prior.order  # about the bytes of its tables
        if room < 0:
            return min(most, [hypothesis.task for hypothesis in hypotheses].index(task))
    return most
