"""From a query to problems, one for each task that it may belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError
from cefito.planners.base import UNCONSTRAINED, Queries
from cefito.planners.cefito.weights import NOTHING_FITTED, ObjectiveFit, Weights
from cefito.search.chain import Chain
from cefito.search.constraints import Constraints
from cefito.search.prior import NGramPrior
from cefito.search.problem import Effort, Objective, Plans, Problem
from cefito.search.space import Space

__all__ = [
    "Hypotheses",
    "Hypothesis",
    "StepLogits",
    "TaskProbabilities",
    "compiled_problems",
    "merged",
    "no_plans",
]

_PLAUSIBLE = np.log(1e-3)
"""Log-probability of a task, below which it is searched only if it is the likeliest."""
_PRIOR = Weights(energy=0.0, prior=1.0)


@dataclass(frozen=True)
class Hypothesis:
    """A task that a query may belong to.

    Attributes:
        query: Number of the query.
        task: The task.
        log_probability: Of the task given the observations; 0 where it is given.
    """

    query: int
    task: int
    log_probability: float


class TaskProbabilities(Protocol):
    """Says which tasks are likely."""

    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Log p(task | observations), [N, |C|]."""


class StepLogits(Protocol):
    """Says which actions are likely at each step."""

    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Logits of each step's action over all actions, whichever the task, [N, T, K]."""


@dataclass(frozen=True)
class Hypotheses:
    """Makes the problems of queries.

    Attributes:
        space: Actions of each task.
        task_model: Says which tasks are likely.
        prior: Prior over sequences.
        proposal: Says which actions are likely at each step.
        fitted: Weights of the objectives and of the guide, and how many tasks to search.
    """

    space: ActionSpace
    task_model: TaskProbabilities
    prior: NGramPrior
    proposal: StepLogits
    fitted: ObjectiveFit = NOTHING_FITTED

    def of(self, queries: Queries, tasks: int) -> list[Hypothesis]:
        """The likeliest tasks of each query, likeliest first, or the given one.

        Args:
            queries: Observations, perhaps with tasks.
            tasks: Most tasks a query; those less likely than one in a thousand are left out, but
                never the first.
        """
        if queries.tasks is not None:
            return [
                Hypothesis(query=row, task=int(task), log_probability=0.0)
                for row, task in enumerate(queries.tasks)
            ]
        logs = self.task_model.log_probabilities(queries).astype(np.float64)
        order = np.argsort(-logs, axis=1, kind="stable")[:, :tasks]
        return [
            Hypothesis(query=row, task=int(task), log_probability=float(logs[row, task]))
            for row, ranked in enumerate(order)
            for place, task in enumerate(ranked)
            if place == 0 or logs[row, task] >= _PLAUSIBLE
        ]

    def problems(
        self,
        queries: Queries,
        hypotheses: Sequence[Hypothesis],
        *,
        weights: Weights,
        constraints: Constraints = UNCONSTRAINED,
        pruning: int | None = None,
    ) -> list[Problem]:
        """The problem of each hypothesis.

        What guides a search is the prior and the proposal network, weighted as predicts true
        sequences best; but the prior alone where the objective has no part of the network:
        sequences of low energy need not look like what the network expects.

        Args:
            queries: Observations.
            hypotheses: Tasks of these queries.
            weights: Weights of the objective.
            constraints: What every plan must satisfy.
            pruning: Allow only transitions seen in training windows of the task and so many likely
                others; None allows all.
        """
        steps = self.steps(queries)
        problems = []
        for hypothesis in hypotheses:
            actions = self.space.actions[hypothesis.task]
            horizon = steps.shape[1]
            prior = self.prior.chain(hypothesis.task, horizon, actions)
            proposal = self.proposal_chain(steps[hypothesis.query], actions)
            chain = None
            if weights.prior or weights.proposal:
                chain = _weighted(prior, proposal, weights)
            if pruning is not None:
                pruned = self.prior.pruned(hypothesis.task, horizon, pruning, actions)
                chain = pruned if chain is None else chain + pruned
            energy = max(weights.energy, 1e-9)
            problems.append(
                Problem(
                    initial=queries.initial[hypothesis.query],
                    goal=queries.goal[hypothesis.query],
                    actions=actions,
                    constraints=constraints,
                    objective=Objective(
                        temperature=1 / energy,
                        chain=chain,
                        offset=-weights.task * hypothesis.log_probability,
                    ),
                    guide=_weighted(
                        prior, proposal, self.fitted.guide if weights.proposal else _PRIOR
                    ),
                )
            )
        return problems

    def steps(self, queries: Queries) -> NDArray[np.float64]:
        """Logits of each step of each query over all actions, [N, T, K]."""
        return self.proposal.logits(queries).astype(np.float64)

    def proposal_chain(self, logits: NDArray[np.float64], actions: Sequence[int]) -> Chain:
        """−log q of each step's action among those of a task, from logits [T, K]."""
        allowed = logits[:, list(actions)]
        allowed = allowed - allowed.max(axis=1, keepdims=True)
        logs = allowed - np.log(np.exp(allowed).sum(axis=1, keepdims=True))
        return Chain(costs=tuple(-row for row in logs))


def merged(found: Sequence[tuple[Hypothesis, Plans]], top_k: int) -> Plans:
    """The best plans over the hypotheses of one query, each sequence once."""
    actions = np.concatenate([plans.actions for _, plans in found])
    energies, scores = (
        np.concatenate(parts)
        for parts in zip(*((plans.energies, plans.scores) for _, plans in found), strict=True)
    )
    tasks = np.repeat(
        [hypothesis.task for hypothesis, _ in found], [len(plans) for _, plans in found]
    )
    order = np.lexsort((*actions.T[::-1], scores))
    kept: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for row in order.tolist():
        if len(kept) < top_k and (sequence := tuple(actions[row].tolist())) not in seen:
            seen.add(sequence)
            kept.append(row)
    effort = sum((plans.evaluated for _, plans in found), Effort(0, 0))
    return Plans(
        actions=actions[kept],
        energies=energies[kept],
        scores=scores[kept],
        evaluated=effort,
        exact=all(plans.exact for _, plans in found),
        tasks=tasks[kept],
        searched=len(found),
    )


def no_plans(horizon: int) -> Plans:
    """What a query gets that was not reached before the search was stopped."""
    nothing = np.zeros(0)
    return Plans(
        actions=np.zeros((0, horizon), dtype=np.int64),
        energies=nothing,
        scores=nothing,
        evaluated=Effort(0, 0),
        exact=False,
        tasks=np.zeros(0, dtype=np.int64),
        searched=0,
    )


def _weighted(prior: Chain, proposal: Chain, weights: Weights) -> Chain:
    parts = [
        chain * weight
        for chain, weight in ((prior, weights.prior), (proposal, weights.proposal))
        if weight
    ]
    return sum(parts[1:], parts[0]) if parts else Chain.free(prior.horizon, prior.size)


def compiled_problems(
    hypotheses: Sequence[Hypothesis],
    problems: Sequence[Problem],
    *,
    horizon: int,
    queries: int,
    taxonomy: Taxonomy,
) -> tuple[list[Hypothesis], list[Space]]:
    """The hypotheses under which the constraints can be satisfied, their problems compiled.

    Args:
        hypotheses: Tasks of queries, of each query the likeliest first.
        problems: Their problems.
        horizon: T.
        queries: Number of queries.
        taxonomy: Names the tasks in messages.

    Raises:
        ConfigError: A query is left without any.
    """
    kept: list[tuple[Hypothesis, Space]] = []
    refusals: list[list[str]] = [[] for _ in range(queries)]
    for hypothesis, problem in zip(hypotheses, problems, strict=True):
        try:
            kept.append((hypothesis, Space(problem, horizon)))
        except ConfigError as refusal:
            name = taxonomy.tasks[hypothesis.task].name
            refusals[hypothesis.query].append(f"task {hypothesis.task} ('{name}'): {refusal}")
    left = {hypothesis.query for hypothesis, _ in kept}
    for query, lines in enumerate(refusals):
        if query not in left and lines:
            raise ConfigError(lines[0] + _others(len(lines) - 1))
    return [hypothesis for hypothesis, _ in kept], [space for _, space in kept]


def _others(count: int) -> str:
    if count == 0:
        return ""
    if count == 1:
        return " The next likely task cannot satisfy it either."
    return f" The next {count} likely tasks cannot satisfy it either."
