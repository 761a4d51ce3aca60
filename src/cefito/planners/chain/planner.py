"""The chain as a planner: the likeliest sequences over all tasks, without a field."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.errors import ConfigError
from cefito.planners.base import Abilities, Marginals, Queries
from cefito.planners.chain.ensemble import EnsemblePlanner, WeightedScores
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.method import ABILITIES
from cefito.planners.chain.model import ChainModel, task_costs
from cefito.runtime import full_precision
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans, Problem, SearchCost, Space

_PAIRS = 1024  # limit of the pairs of task and sequence listed to prove the order of their sums
_ROUNDING = 1e-6
_COMPARED = 64  # sequences of each task that plans are weighed against under constraints


@dataclass(frozen=True, eq=False, repr=False)
class ChainPlanner(EnsemblePlanner):
    """Plans the likeliest sequences under a chain, exactly, each summed over all tasks.

    A sequence is listed with the likeliest of its tasks. Energies and scores are
    −log p(sequence | observations), or −log p(sequence | task, observations) if the task is given;
    constraints do not change them. Without constraints, probabilities are p. With constraints, a
    probability is p divided by the sum of p over the allowed pairs of task and sequence that were
    listed; at least 64 pairs of each task are listed, if it has as many.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    name = "chain"
    ensemble = ChainModel
    model: ChainModel

    @override
    def log_tasks(self, queries: Queries) -> NDArray[np.float64]:
        return self.model.log_tasks(queries)

    @torch.inference_mode()
    @full_precision()
    def marginals(self, queries: Queries) -> Marginals:
        """Return the probabilities of tasks and steps, summed over sequences."""
        return self.model.evidence(queries).marginals(queries.tasks)

    @override
    def block_plans(self, queries: Queries, top_k: int, constraints: Constraints) -> list[Plans]:
        return likeliest_plans(self.model.scores(queries), queries, top_k, constraints)

    @override
    def weighted_scores(self, queries: Queries) -> list[WeightedScores]:
        scores = self.model.scores(queries)
        if queries.tasks is not None:
            scores = scores.given(torch.from_numpy(queries.tasks).to(scores.emissions.device))
        return [WeightedScores(scores.emissions.new_zeros(len(queries)), scores)]


class Listed(NamedTuple):
    """The likeliest sequences of one query, likeliest first."""

    actions: NDArray[np.int64]  # [k, T]
    tasks: NDArray[np.int64]  # likeliest task of each [k]
    logs: NDArray[np.float64]  # log of the sum of exp(score) over all tasks [k]
    exact: bool  # whether no sequence outside the list has a larger sum


def likeliest_plans(
    scores: SequenceScores, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
) -> list[Plans]:
    """Return the likeliest sequences of some queries, whose scores fit the memory.

    Plans are called exact as by `likeliest_sequences`.

    Args:
        scores: Scores of the queries.
        queries: B queries.
        top_k: Number of plans of each.
        constraints: Constraints on the plans.
    """
    states, tasks = scores.states, None
    if queries.tasks is not None:
        tasks = torch.from_numpy(queries.tasks).to(scores.emissions.device)[:, None]
    sums = scores.log_task_sums()  # [B, C]
    # log of the sum over all sequences that probabilities are shares of, [B]
    total = sums.logsumexp(dim=1) if tasks is None else sums.gather(1, tasks)[:, 0]
    if constraints:
        return [
            _constrained(scores, sums[row], float(log_sum), queries, row, top_k, constraints)
            for row, log_sum in enumerate(total)
        ]
    of_tasks = np.exp((sums - total[:, None]).double().cpu().numpy()).clip(max=1)
    count = states.task_count
    if tasks is not None:
        of_tasks, count = np.ones_like(of_tasks), 1
        scores = scores.given(tasks[:, 0])
    return [
        _plans(
            listing.actions,
            listing.logs - log_sum,
            listing.tasks,
            count,
            shares,
            exact=listing.exact,
        )
        for listing, log_sum, shares in zip(
            likeliest_sequences(scores, top_k, tasks),
            total.double().cpu().numpy(),
            of_tasks,
            strict=True,
        )
    ]


def likeliest_sequences(
    scores: SequenceScores, top_k: int, tasks: Tensor | None = None
) -> list[Listed]:
    """Return the sequences of the largest sums over tasks for each query.

    List the best pairs of task and sequence, at most 1,024, until no other sequence can have a
    larger sum; `exact` is False if 1,024 pairs are too few.

    Args:
        scores: Scores of B queries.
        top_k: Number of sequences of each.
        tasks: The only tasks with possible sequences, ascending int64 [B, n]; None if unknown.
    """
    states = scores.states
    several = states.owners.shape[1] if tasks is None else min(states.owners.shape[1], len(tasks.T))
    joint = None  # highest score of a pair whose sequence may have several tasks [B]
    if several > 1:
        alone = torch.where(states.shared, scores.emissions, -torch.inf)
        joint = SequenceScores(states, alone, scores.transitions).highest(tasks)
    listings: dict[int, Listed] = {}
    pending, pairs = torch.arange(len(scores), device=scores.emissions.device), top_k * several
    while len(pending):
        pending_scores = scores.rows(pending)
        best, values = pending_scores.best(pairs, None if tasks is None else tasks[pending])
        actions, task = states.actions[best], states.tasks[best[..., 0]]
        summed, bound = values, values[:, -1]  # −∞ fills columns that a query lacks
        if joint is not None:
            summed = torch.where(
                values.isfinite(), pending_scores.sequence_scores(actions), -torch.inf
            )
            # a further sequence has at most the lowest listed pair, `several` times if it is joint
            bound = torch.maximum(bound, torch.minimum(bound, joint[pending]) + math.log(several))
        rows = _ranked(
            *(tensor.cpu().numpy() for tensor in (actions, task, values)),
            *(tensor.double().cpu().numpy() for tensor in (summed, bound)),
            pairs=pairs,
            top_k=top_k,
        )
        numbers = pending.tolist()
        listings |= zip(numbers, rows, strict=True)
        pairs *= 2
        if pairs > max(_PAIRS, 2 * top_k):
            break
        left = [number for number in numbers if not listings[number].exact]
        pending = torch.tensor(left, dtype=torch.int64, device=pending.device)
    return [listings[row] for row in range(len(scores))]


def _ranked(
    actions: NDArray[np.int64],  # of pairs of each query [B, n, T]
    tasks: NDArray[np.int64],  # [B, n]
    values: NDArray[np.floating[Any]],  # their scores, −∞ for columns without a pair [B, n]
    logs: NDArray[np.float64],  # the sums of their sequences over tasks [B, n]
    bound: NDArray[np.float64],  # of the sum of any further sequence [B]
    *,
    pairs: int,
    top_k: int,
) -> list[Listed]:
    """Return the sequences of listed pairs by their sums, each once, with its likeliest task."""
    rows, order = np.arange(len(actions))[:, None], np.lexsort((-values, -logs))
    actions, tasks = actions[rows, order], tasks[rows, order]
    values, logs = values[rows, order], logs[rows, order]
    batch, width, steps = actions.shape
    keys = np.empty((batch, width, 1 + steps), dtype=np.int64)
    keys[:, :, 0], keys[:, :, 1:] = rows, actions
    first = np.zeros((batch, width), dtype=np.bool_)
    first.flat[np.unique(keys.reshape(-1, 1 + steps), axis=0, return_index=True)[1]] = True
    listed = np.isfinite(values)
    kept = first & listed
    kept &= kept.cumsum(axis=1) <= top_k
    least = np.where(kept, logs, np.inf).min(axis=1, initial=np.inf)
    exact = (listed.sum(axis=1) < pairs) | (
        (kept.sum(axis=1) == top_k) & (least >= bound - _ROUNDING)
    )
    return [
        Listed(actions[row, chosen], tasks[row, chosen], logs[row, chosen], bool(exact[row]))
        for row, chosen in enumerate(kept)
    ]


def _constrained(
    scores: SequenceScores,
    sums: Tensor,  # log Σ exp(score) over the sequences of each task [C]
    total: float,  # the same over all sequences that probabilities are shares of
    queries: Queries,
    row: int,
    top_k: int,
    constraints: Constraints,
) -> Plans:
    """Return the likeliest allowed sequences of one query, searched task by task."""
    states, refusals = scores.states, []
    ranked = sums.argsort(descending=True, stable=True).tolist()
    tasks = ranked if queries.tasks is None else [int(queries.tasks[row])]
    parts, exact, bounds = [], True, []  # log p of pairs that are not listed, at most
    for task in tasks:
        members = states.grid[task][states.grid[task] < len(states)]
        actions = tuple(states.actions[members].tolist())
        if not actions:
            continue
        costs = task_costs(scores, row, task)
        problem = Problem(
            initial=queries.initial[row],
            goal=queries.goal[row],
            actions=actions,
            constraints=constraints,
        )
        try:
            cheapest = Space(problem, scores.horizon).cheapest(costs, max(top_k, _COMPARED))
        except ConfigError as refusal:
            refusals.append(refusal)
            continue
        exact &= cheapest.complete
        bounds.append(-cheapest.bound - total)
        sequences = np.asarray(actions)[cheapest.sequences]
        parts.append((sequences, -cheapest.costs - total, np.full(len(sequences), task)))
    if not parts:
        raise refusals[0]
    sequences, logs, pair_tasks = (np.concatenate(column) for column in zip(*parts, strict=True))
    if queries.tasks is None and states.owners.shape[1] > 1:
        listed = torch.from_numpy(sequences)[None].to(scores.emissions.device)
        log_sums = scores.rows(slice(row, row + 1)).sequence_scores(listed)[0]
        summed = log_sums.double().cpu().numpy() - total
    else:
        summed = logs
    order = np.lexsort((*sequences.T[::-1], pair_tasks, -logs, -summed))
    of_tasks = np.exp((sums - total).double().cpu().numpy()).clip(max=1)
    if queries.tasks is not None:
        of_tasks = np.ones_like(of_tasks)
    first = np.sort(np.unique(sequences[order], axis=0, return_index=True)[1])[:top_k]
    order = order[first]
    # log p of a sequence that is not listed ≤ log Σ over as many tasks as one action has
    owners = 1 if queries.tasks is not None else states.owners.shape[1]
    bound = np.logaddexp.reduce(np.sort(bounds)[-owners:])
    exact &= bool(summed[order].min() >= bound - _ROUNDING)
    plans = _plans(
        sequences[order], summed[order], pair_tasks[order], len(tasks), of_tasks, exact=exact
    )
    # the pairs that were listed have the mass of all allowed ones, nearly
    shares = np.exp(-plans.scores - np.logaddexp.reduce(logs)).clip(max=1)
    return replace(plans, probabilities=shares, searched_mass=None)


def _plans(
    actions: NDArray[np.int64],
    logs: NDArray[np.float64],
    tasks: NDArray[np.int64],
    searched: int,
    of_tasks: NDArray[np.float64],
    *,
    exact: bool,
) -> Plans:
    return Plans(
        actions=actions,
        energies=-logs,
        scores=-logs,
        evaluated=SearchCost(token_forwards=2, leaves=0),
        exact=exact,
        tasks=tasks,
        searched=searched,
        probabilities=np.exp(logs),
        task_probabilities=of_tasks[tasks],
        searched_mass=1.0,
    )
