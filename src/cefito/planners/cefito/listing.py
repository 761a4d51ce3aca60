"""Plans of objectives without the energy: the best sequences of many queries, listed exactly.

By the chain alone, a sequence has one score, summed over its tasks. With the prior, each pair of a
task and a sequence has a score; the score of a sequence is that of its best task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.planners.base import Queries
from cefito.planners.cefito.hypotheses import Hypotheses, likely
from cefito.planners.cefito.objective import Posterior, Weights, times
from cefito.planners.chain.model import ChainEvidence
from cefito.planners.chain.planner import likeliest_sequences
from cefito.search.problem import Plans, SearchCost

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Listing:
    """The likely tasks of some queries, without constraints, whose best sequences are listed."""

    hypotheses: Hypotheses
    queries: Queries
    evidence: ChainEvidence  # the chain of the queries
    weights: Weights  # of an objective without the energy, as if several tasks were searched
    tasks: int  # number of a query's likely tasks that are searched

    @cached_property
    def log_tasks(self) -> Reals:
        """Log-probability of each task [N, C]."""
        return self.hypotheses.log_tasks(self.queries, self.evidence)

    @cached_property
    def _likely(self) -> tuple[Ids, NDArray[np.bool_]]:
        return likely(self.log_tasks, 1 if self.queries.tasks is not None else self.tasks)

    @property
    def _task_weight(self) -> float:
        """Weight of the task in scores; with one task it is the same for every plan."""
        return 0.0 if self.tasks == 1 else self.weights.task

    def plans(self, top_k: int) -> list[Plans]:
        """Return the best plans of each query."""
        return list(self._by_chain(top_k) if self.weights.chain_alone else self._by_pairs(top_k))

    def _by_chain(self, top_k: int) -> Iterator[Plans]:
        weights, log_tasks, (ranked, kept) = self.weights, self.log_tasks, self._likely
        logs = times(weights.task, log_tasks)
        # log Σ exp(−score) over all sequences of all tasks [N]
        power_sums = self.evidence.log_power_sums(weights.chain)
        total = np.logaddexp.reduce(power_sums + logs, axis=1)
        searched = np.full_like(logs, -np.inf)
        own = np.where(kept, np.take_along_axis(logs, ranked, axis=1), -np.inf)
        np.put_along_axis(searched, ranked, own, axis=1)
        found = likeliest_sequences(
            self.evidence.weighed(weights.chain, searched),
            top_k,
            torch.from_numpy(np.sort(ranked, axis=1)).to(self.evidence.scores.emissions.device),
        )
        excess = weights.task - self._task_weight
        for one, mass, row, count in zip(found, total, log_tasks, kept.sum(axis=1), strict=True):
            chosen = row[one.tasks]
            values = excess * chosen - one.logs
            yield Plans(
                actions=one.actions,
                energies=values,
                scores=values,
                evaluated=SearchCost(0, 0),
                exact=one.exact,
                tasks=one.tasks,
                searched=int(count),
                probabilities=np.exp(one.logs - mass),
                task_probabilities=np.exp(chosen),
                searched_mass=1.0,
            )

    def _by_pairs(self, top_k: int) -> Iterator[Plans]:
        ranked, kept = self._likely
        # as many of each task as their probability is compared with, [N, n · m]
        tasks, actions, scores = self._pairs(max(top_k, Posterior.COMPARED))
        posterior = Posterior.make(self.evidence, self.log_tasks, self.weights, constrained=False)
        mass = posterior.masses(tasks, actions, np.isfinite(scores))
        # log Σ_found exp(−score) [N]
        total = np.logaddexp.reduce(-scores, axis=1)
        order = np.lexsort((*np.moveaxis(actions, 2, 0)[::-1], scores))
        # each task lists a sequence at most once
        order = order[:, : top_k * ranked.shape[1]]
        tasks = np.take_along_axis(tasks, order, axis=1)
        scores = np.take_along_axis(scores, order, axis=1)
        actions = np.take_along_axis(actions, order[:, :, None], axis=1)
        best = first_of_each(actions) & np.isfinite(scores)
        best &= best.cumsum(axis=1) <= top_k
        probable = np.take_along_axis(np.exp(self.log_tasks), tasks, axis=1)
        shares = np.exp(-scores - total[:, None]) * mass[:, None]
        for row, (own, count) in enumerate(zip(best, kept.sum(axis=1).tolist(), strict=True)):
            values = scores[row, own]
            yield Plans(
                actions=actions[row, own],
                energies=values,
                scores=values,
                evaluated=SearchCost(0, 0),
                exact=True,
                tasks=tasks[row, own],
                searched=count,
                probabilities=shares[row, own],
                task_probabilities=probable[row, own],
                searched_mass=float(mass[row]),
            )

    def _pairs(self, count: int) -> tuple[Ids, Ids, Reals]:
        """Return the `count` best sequences of each likely task of each query.

        They are tasks [N, M], actions [N, M, T] and scores [N, M], infinite where a task has fewer.
        """
        ranked, kept = self._likely
        horizon = self.evidence.scores.horizon
        actions = np.zeros((*ranked.shape, count, horizon), dtype=np.int64)
        scores = np.full(actions.shape[:3], np.inf)
        for task in np.unique(ranked[kept]).tolist():
            rows, places = np.nonzero(kept & (ranked == task))
            costs = self.hypotheses.costs(self.evidence, rows, task, horizon, self.weights)
            found, values, _ = costs.lists(count)
            ids = np.array(self.hypotheses.space.actions[task])
            actions[rows, places, : found.shape[1]] = ids[found]
            offset = self._task_weight * self.log_tasks[rows, task]
            scores[rows, places, : found.shape[1]] = values - offset[:, None]
        tasks = np.repeat(ranked, count, axis=1)
        number = len(ranked)
        return tasks, actions.reshape(number, -1, horizon), scores.reshape(number, -1)


def first_of_each(actions: Ids) -> NDArray[np.bool_]:
    """Return whether no earlier sequence of the same query [N, M, T] is the same, [N, M]."""
    number, width, steps = actions.shape
    keys = np.empty((number, width, 1 + steps), dtype=np.int64)
    keys[:, :, 0], keys[:, :, 1:] = np.arange(number)[:, None], actions
    first = np.zeros((number, width), dtype=np.bool_)
    first.flat[np.unique(keys.reshape(-1, 1 + steps), axis=0, return_index=True)[1]] = True
    return first
