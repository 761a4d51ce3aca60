"""From a query to problems: one for each task it may belong to.

With the objective and the guide of that task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace
from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.planners.base import Queries
from cefito.planners.cefito.weights import OBJECTIVES, PAPER, TERMS, Weights, fit_weights
from cefito.search.chain import Chain
from cefito.search.constraints import Constraints
from cefito.search.guided import GuidedSearch
from cefito.search.prior import NGramPrior
from cefito.search.problem import Effort, IncrementalEnergies, Objective, Plans, Problem
from cefito.search.space import Space

__all__ = ["FITTED_TASKS", "Hypotheses", "Hypothesis", "feasible", "merged", "no_plans"]

FITTED_TASKS = 5
"""Most tasks of a query among which the number to search is chosen."""
_PLAUSIBLE = np.log(
    1e-3
)  # log-probability of a task, less than which it is searched only if it is the likeliest
_GUIDE = Weights(energy=0.0, prior=1.0, proposal=1.0)
_PRIOR = Weights(energy=0.0, prior=1.0)
_CANDIDATES = (
    128  # likely sequences, and as many of low energy, among which the true one is told apart
)


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


class Hypotheses:
    """Makes the problems of queries.

    Args:
        space: Actions of each task.
        task_model: Says which tasks are likely.
        prior: Prior over sequences.
        proposal: Says which actions are likely at each step.
        weights: Weights of each objective ("energy", "prior", "fitted"), as fitted.
        guide: Weights of the guide, as fitted; its energy weight does not matter.
        tasks: How many tasks to search, as chosen by `fit`.

    Raises:
        ConfigError: Less than one task to search.
    """

    def __init__(
        self,
        *,
        space: ActionSpace,
        task_model: TaskProbabilities,
        prior: NGramPrior,
        proposal: StepLogits,
        weights: Mapping[str, Weights] | None = None,
        guide: Weights = _GUIDE,
        tasks: int = 1,
    ) -> None:
        if tasks < 1:
            raise ConfigError(f"{tasks} tasks to search; expected at least 1.")
        self.space, self.task_model, self.prior, self.proposal = space, task_model, prior, proposal
        self.weights = dict(weights or dict.fromkeys(OBJECTIVES, PAPER))
        self.guide, self.tasks = guide, tasks

    def of(self, queries: Queries, tasks: int) -> list[Hypothesis]:
        """The likeliest tasks of each query, at most so many, likeliest first.

        The given ones where there are any.
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
        constraints: Constraints = Constraints(),
        pruning: int | None = None,
    ) -> list[Problem]:
        """The problem of each hypothesis.

        What guides a search is the prior and the proposal network, weighted as predicts true
        sequences best; but the prior
        alone where the objective has no part of the network: sequences of low energy need not look
        like what the network expects.

        Args:
            queries: Observations.
            hypotheses: Tasks of these queries.
            weights: Weights of the objective.
            constraints: What every plan must satisfy.
            pruning: Allow only transitions seen in training windows of the task and so many likely
                others; None allows all.
        """
        steps = self._steps(queries)
        problems = []
        for one in hypotheses:
            actions = self.space.actions[one.task]
            horizon = steps.shape[1]
            prior, proposal = (
                self.prior.chain(one.task, horizon, actions),
                self._proposal(steps[one.query], actions),
            )
            chain = None
            if weights.prior or weights.proposal:
                chain = _weighted(prior, proposal, weights)
            if pruning is not None:
                pruned = self.prior.pruned(one.task, horizon, pruning, actions)
                chain = pruned if chain is None else chain + pruned
            energy = max(weights.energy, 1e-9)
            problems.append(
                Problem(
                    initial=queries.initial[one.query],
                    goal=queries.goal[one.query],
                    actions=actions,
                    constraints=constraints,
                    objective=Objective(
                        temperature=1 / energy,
                        chain=chain,
                        offset=-weights.task * one.log_probability,
                    ),
                    guide=_weighted(prior, proposal, self.guide if weights.proposal else _PRIOR),
                )
            )
        return problems

    def _steps(self, queries: Queries) -> NDArray[np.float64]:
        return self.proposal.logits(queries).astype(np.float64)

    def _proposal(self, logits: NDArray[np.float64], actions: Sequence[int]) -> Chain:
        """−log q of each step's action among those of a task, from logits [T, K]."""
        own = logits[:, list(actions)]
        top = own.max(axis=1, keepdims=True)
        logs = own - top - np.log(np.exp(own - top).sum(axis=1, keepdims=True))
        return Chain(costs=tuple(-row for row in logs))

    def fit(
        self, field: IncrementalEnergies[Any], val: Windows, *, windows: int, memory_mib: float
    ) -> None:
        """Fit the weights of objectives and guide, and choose the number of tasks.

        On validation windows.

        The candidates of a window are, for each of its likeliest tasks, the sequences likeliest
        under the guide and those of lowest energy that guided search finds; the true one is added
        where its task is among these.

        Args:
            field: The field.
            val: Validation windows.
            windows: Size of the sample of them; 0 for all.
            memory_mib: Memory bound of the search.
        """
        sample = val.sample(windows or None, seed=0)
        queries = Queries.from_windows(sample)
        hypotheses = self.of(queries, FITTED_TASKS)
        problems = self.problems(queries, hypotheses, weights=PAPER)
        likely = GuidedSearch(proposals=_CANDIDATES, refinements=0, memory_mib=memory_mib).search(
            field, self.problems(queries, hypotheses, weights=_GUIDE), _CANDIDATES
        )
        low = GuidedSearch(memory_mib=memory_mib).search(field, problems, _CANDIDATES)
        plans = [
            merged([(one, part) for part in parts], 2 * _CANDIDATES)
            for one, *parts in zip(hypotheses, likely, low, strict=True)
        ]
        steps = self._steps(queries)
        rows: list[list[NDArray[np.float64]]] = [[] for _ in range(len(queries))]
        ranks: list[list[int]] = [
            [] for _ in range(len(queries))
        ]  # of the hypothesis, for each part
        right: list[list[NDArray[np.float64]]] = [
            [] for _ in range(len(queries))
        ]  # share of right actions
        for one, problem, found in zip(hypotheses, problems, plans, strict=True):
            actual = sample.actions[one.query]
            place = {action: number for number, action in enumerate(problem.actions)}
            actions, energies = found.actions, found.energies
            if (
                one.task == sample.tasks[one.query]
                and set(actual.tolist()) <= place.keys()
                and not (actions == actual).all(axis=1).any()
            ):
                actions = np.concatenate([actions, actual[None]])
                energies = np.append(energies, _energy(field, problem, actual))
            places = np.vectorize(place.__getitem__, otypes=[np.int64])(actions)
            prior = self.prior.chain(one.task, places.shape[1], problem.actions).cost(places)
            proposal = self._proposal(steps[one.query], problem.actions).cost(places)
            energies = np.where(np.isfinite(energies), energies, 1e6)
            rows[one.query].append(
                np.stack(
                    [energies, prior, proposal, np.full(len(prior), -one.log_probability)], axis=1
                )
            )
            share = (actions == actual).mean(axis=1)
            right[one.query].append(np.where(one.task == sample.tasks[one.query], share, 0.0))
            ranks[one.query].append(len(ranks[one.query]))
        features = [np.concatenate(parts) for parts in rows]
        correct = [np.concatenate(parts) for parts in right]
        number = [
            np.repeat(own, [len(part) for part in parts])
            for own, parts in zip(ranks, rows, strict=True)
        ]
        known = [row for row, share in enumerate(correct) if (share == 1).any()]
        if not known:
            return
        truth = [int(np.flatnonzero(correct[row] == 1)[0]) for row in known]
        features_known = [features[row] for row in known]
        self.weights = {
            name: _fitted(features_known, truth, terms) for name, terms in OBJECTIVES.items()
        }
        alone = self.weights["energy"]
        self.weights["energy"] = replace(
            PAPER, task=alone.task / alone.energy if alone.energy else 0.0
        )
        self.guide = _fitted(features_known, truth, ("prior", "proposal", "task"))
        scores = [
            part @ np.array([getattr(self.weights["fitted"], term) for term in TERMS])
            for part in features
        ]
        outcomes = []
        for tasks in range(1, FITTED_TASKS + 1):
            chosen = [
                share[np.where(own < tasks, score, np.inf).argmin()]
                for score, share, own in zip(scores, correct, number, strict=True)
            ]
            outcomes.append((float(np.equal(chosen, 1).mean()), float(np.mean(chosen))))
        self.tasks = 1 + max(range(FITTED_TASKS), key=lambda index: outcomes[index])


def _fitted(
    features: Sequence[NDArray[np.float64]], truth: Sequence[int], terms: Sequence[str]
) -> Weights:
    """Weights of some of the terms, the others zero."""
    columns = [TERMS.index(term) for term in terms]
    weights = fit_weights([part[:, columns] for part in features], truth)
    return Weights(
        **{**dict.fromkeys(TERMS, 0.0), **dict(zip(terms, weights.tolist(), strict=True))}
    )


def merged(found: Sequence[tuple[Hypothesis, Plans]], top_k: int) -> Plans:
    """The best plans over the hypotheses of one query, each sequence once."""
    actions = np.concatenate([plans.actions for _, plans in found])
    energies, scores = (
        np.concatenate(parts)
        for parts in zip(*((plans.energies, plans.scores) for _, plans in found), strict=True)
    )
    tasks = np.repeat([one.task for one, _ in found], [len(plans) for _, plans in found])
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
    )


def _weighted(prior: Chain, proposal: Chain, weights: Weights) -> Chain:
    parts = [
        chain * weight
        for chain, weight in ((prior, weights.prior), (proposal, weights.proposal))
        if weight
    ]
    return sum(parts[1:], parts[0]) if parts else Chain.free(prior.horizon, prior.size)


def _energy(field: IncrementalEnergies[Any], problem: Problem, actions: NDArray[np.int64]) -> float:
    initial, goal, sequence = (
        torch.from_numpy(part[None]).to(field.device)
        for part in (problem.initial, problem.goal, actions)
    )
    return float(field.energy(initial, goal, sequence)[0])


def feasible(
    tasks: list[Hypothesis], problems: list[Problem], horizon: int, queries: int
) -> tuple[list[Hypothesis], list[Problem]]:
    """The hypotheses under which the constraints can be satisfied; of each query there must be one.

    Raises:
        ConfigError: A query has none.
    """
    kept: list[tuple[Hypothesis, Problem]] = []
    refusals: dict[int, ConfigError] = {}
    for one, problem in zip(tasks, problems, strict=True):
        try:
            Space(problem, horizon)
        except ConfigError as refusal:
            refusals.setdefault(one.query, refusal)
        else:
            kept.append((one, problem))
    left = {one.query for one, _ in kept}
    for query in range(queries):
        if query not in left:
            raise refusals[query]
    return [one for one, _ in kept], [problem for _, problem in kept]
