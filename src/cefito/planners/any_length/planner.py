"""Planner of sequences of any length in a range, by the likeliest lengths and sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.errors import ConfigError
from cefito.planners.any_length.method import ABILITIES
from cefito.planners.any_length.model import AnyLengthModel
from cefito.planners.base import Abilities, Marginals, Queries
from cefito.planners.chain.ensemble import EnsemblePlanner, WeightedScores
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.model import ChainEvidence
from cefito.planners.chain.planner import likeliest_plans
from cefito.runtime import full_precision
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans, SearchCost

_COMPARED = 64  # plans of each length that are weighed against each other under constraints


@dataclass(frozen=True, eq=False, repr=False)
class AnyLengthPlanner(EnsemblePlanner):
    """Plans the likeliest sequences of all lengths of a range in one ranking, exactly.

    Energies are −log p(length) p(task, sequence | length), given what is known of the query. Plans
    of several lengths are padded with −1. Given one length, plans have that length. With `edit`,
    plans are ranked by the least expected edit distance to the true plan (minimum Bayes risk) over
    the likeliest plans, and are never called exact.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    name = "any-length"
    together = 256
    ensemble = AnyLengthModel
    model: AnyLengthModel
    lengths: tuple[int, ...] = ()  # that it plans, ascending; all of the model if not given
    edit: bool = False  # whether plans are ranked by their expected edit distance

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", self.lengths or self.model.lengths)

    def with_lengths(self, shortest: int, longest: int) -> Self:
        """Return a planner of some of the lengths (ConfigError if it was not trained for them)."""
        trained = self.model.lengths
        if not trained[0] <= shortest <= longest <= trained[-1]:
            asked = shortest if shortest == longest else f"{shortest}-{longest}"
            raise ConfigError(
                f"steps {asked}: this run plans {trained[0]} to {trained[-1]} steps.",
                setting="steps",
            )
        return replace(self, lengths=tuple(range(shortest, longest + 1)))

    @property
    def horizon(self) -> int:
        """The longest of its lengths."""
        return self.lengths[-1]

    @property
    def mean_observation(self) -> NDArray[np.float32] | None:
        """Mean observation of its training windows [E]."""
        network = self.model.networks[0]
        return network.mean.cpu().numpy() if network.config.centre else None

    @property
    def reads_elapsed(self) -> bool:
        """Whether its training windows had times."""
        return self.model.reads_elapsed

    def _parts(
        self, queries: Queries, *, use_tasks: bool = True
    ) -> tuple[Tensor, list[SequenceScores], Tensor]:
        """Return log p(T) [B, L'], the scores of each length, and log p(c | T) [B, L', C].

        If queries have tasks and unless `use_tasks` is False, the first one is log p(T | c).
        """
        inputs = self.model.known(queries)
        logs, by_length = self.model.parts(inputs, self.lengths)
        tasks = torch.stack([scores.log_tasks() for scores in by_length], dim=1)
        return (_given_tasks(logs, tasks, queries) if use_tasks else logs), by_length, tasks

    @override
    @torch.inference_mode()
    @full_precision()
    def log_tasks(self, queries: Queries) -> NDArray[np.float64]:
        blocks = []
        for block in queries.blocks(self.together):
            logs, _, tasks = self._parts(block, use_tasks=False)
            # log Σ_T p(T) p(task | T)
            blocks.append((logs[:, :, None] + tasks).logsumexp(dim=1))
        return np.asarray(torch.cat(blocks).double().cpu().numpy())

    @torch.inference_mode()
    @full_precision()
    def marginals(self, queries: Queries) -> Marginals:
        """Return the probabilities of tasks and steps, summed over lengths and sequences."""
        logs, by_length, log_tasks = self._parts(queries, use_tasks=False)
        logs, log_tasks = logs.double(), log_tasks.double()
        tasks = (logs[:, :, None] + log_tasks).logsumexp(dim=1).exp().cpu().numpy()
        shares = _given_tasks(logs, log_tasks, queries).exp().cpu().numpy()
        steps = np.zeros((len(queries), self.horizon, self.model.states.lookup.shape[1]))
        for place, (length, scores) in enumerate(zip(self.lengths, by_length, strict=True)):
            # p(a_t = a) = Σ_T≥t p(T) p(a_t = a | T)
            length_steps = ChainEvidence.of(scores).steps(queries.tasks)
            steps[:, :length] += shares[:, place, None, None] * length_steps
        return Marginals(tasks=tasks, steps=steps)

    @torch.inference_mode()
    @full_precision()
    def log_lengths(self, queries: Queries) -> NDArray[np.float64]:
        """Return log p(length | what is known), with a task if it is given, [N, L']."""
        logs = [self._parts(block)[0] for block in queries.blocks(self.together)]
        return np.asarray(torch.cat(logs).double().cpu().numpy())

    @override
    def weighted_scores(self, queries: Queries) -> list[WeightedScores]:
        logs, by_length, _ = self._parts(queries)
        if queries.tasks is not None:
            tasks = torch.from_numpy(queries.tasks).to(logs.device)
            by_length = [scores.given(tasks) for scores in by_length]
        return [WeightedScores(logs[:, place], scores) for place, scores in enumerate(by_length)]

    @override
    def block_plans(self, queries: Queries, top_k: int, constraints: Constraints) -> list[Plans]:
        logs, by_length, tasks = self._parts(queries)
        if queries.tasks is not None:
            tasks = torch.zeros_like(tasks)
        return self.ranked(queries, by_length, logs, tasks, top_k, constraints)

    def ranked(
        self,
        queries: Queries,
        by_length: Sequence[SequenceScores],
        log_lengths: Tensor,
        log_tasks: Tensor,
        top_k: int,
        constraints: Constraints = UNCONSTRAINED,
    ) -> list[Plans]:
        """Return the likeliest sequences of queries with these distributions, over all lengths.

        Args:
            queries: B queries.
            by_length: Scores of the sequences of each length.
            log_lengths: log p(T) [B, L'].
            log_tasks: log p(c | T) [B, L', C].
            top_k: Number of plans of each.
            constraints: Constraints on the plans.
        """
        # p(c) = Σ_T p(T) p(c | T)
        of_tasks = (log_lengths[:, :, None] + log_tasks).logsumexp(dim=1).exp()
        plans_by_length, refusals = {}, []
        count = max(top_k, _COMPARED) if constraints or self.edit else top_k
        for length, scores in zip(self.lengths, by_length, strict=True):
            try:
                plans_by_length[length] = likeliest_plans(scores, queries, count, constraints)
            except ConfigError as refusal:  # no sequence of the length satisfies the constraints
                refusals.append(refusal)
        if not plans_by_length:
            raise refusals[-1]  # of the longest plans, of which most is possible
        of_lengths, shares = (tensor.double().cpu().numpy() for tensor in (log_lengths, of_tasks))
        return [
            self._merged(
                {length: plans[row] for length, plans in plans_by_length.items()},
                of_lengths[row],
                shares[row].clip(max=1),
                top_k,
            )
            for row in range(len(queries))
        ]

    def _merged(
        self,
        by_length: dict[int, Plans],  # of one query, by length
        log_lengths: NDArray[np.float64],  # log p(T) [L']
        of_tasks: NDArray[np.float64],  # p(c) [C]
        top_k: int,
    ) -> Plans:
        """Merge the plans of all lengths, likeliest first."""
        parts = list(by_length.values())
        # −log p(T) − log p(c, a | T)
        scores = np.concatenate(
            [
                plans.scores - log_lengths[self.lengths.index(length)]
                for length, plans in by_length.items()
            ]
        )
        actions, first = np.full((len(scores), self.horizon), -1), 0
        for length, plans in by_length.items():
            actions[first : first + len(plans), :length] = plans.actions
            first += len(plans)
        tasks = np.concatenate([plans.tasks for plans in parts if plans.tasks is not None])
        order = np.lexsort((*actions.T[::-1], scores))
        criterion = _edit_distances(actions, scores) if self.edit else scores
        best = order[criterion[order].argsort(kind="stable")][:top_k]
        probabilities, constrained = np.exp(-scores), parts[0].searched_mass is None
        if constrained:  # shares of the allowed plans that were compared
            probabilities = probabilities / probabilities.sum()
        return Plans(
            actions=actions[best],
            energies=scores[best],
            scores=criterion[best],
            evaluated=SearchCost(token_forwards=2, leaves=0),
            exact=not self.edit and all(plans.exact for plans in parts),
            tasks=tasks[best],
            searched=parts[0].searched,
            probabilities=probabilities[best],
            task_probabilities=of_tasks[tasks[best]],
            searched_mass=None if constrained else 1.0,
            length_probabilities=dict(zip(self.lengths, np.exp(log_lengths).tolist(), strict=True)),
        )


def _edit_distances(
    actions: NDArray[np.int64], energies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected edit distance [n] of plans [n, longest] with energies [n]."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    likely = energies.argsort(kind="stable")[:_COMPARED]
    plans = [row[row >= 0].tolist() for row in actions]
    others = [plans[place] for place in likely]
    distances = cdist(plans, others, scorer=Levenshtein.normalized_distance, dtype=np.float64)
    weights = np.exp(energies[likely[0]] - energies[likely])
    # Σ_b p(b) d(a, b) / Σ_b p(b)
    return np.asarray(distances @ weights / weights.sum())


def _given_tasks(logs: Tensor, tasks: Tensor, queries: Queries) -> Tensor:
    """Return log p(T | c) [B, L'] from log p(T) and log p(c | T); log p(T) without given tasks."""
    if queries.tasks is None:
        return logs
    # p(T | c) ∝ p(T) p(c | T)
    return (logs + tasks[torch.arange(len(logs)), :, queries.tasks]).log_softmax(dim=1)
