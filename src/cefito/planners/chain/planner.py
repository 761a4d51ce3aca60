"""The chain as a planner: the likeliest sequences over all tasks at once, without a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.action_space import action_space
from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    BasePlanner,
    Fitted,
    Queries,
    check_queries,
)
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.model import ChainModel, task_costs
from cefito.planners.chain.settings import ChainSettings
from cefito.planners.networks import TrainingContext
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Effort, Plans, Problem
from cefito.search.space import Space

__all__ = ["ChainPlanner"]

_COMPARED = 64  # sequences of each task that plans are weighed against under constraints


@dataclass(frozen=True, eq=False)
class ChainPlanner(BasePlanner):
    """Plans the likeliest (task, sequence) pairs under a chain, exactly.

    Energies and scores are minus the logarithm of the pair's probability among all pairs, or among
    those of the task where that is given. So are its probabilities; but under constraints they are
    shares among those of the allowed pairs that were listed, 64 a task or more.

    Attributes:
        model: The trained chain.
    """

    abilities: ClassVar[Abilities] = Abilities(constraints=True, probabilities=True)
    name = "chain"
    model: ChainModel

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: ChainSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the chain over the actions that training windows show of each task.

        Raises:
            RunError: A checkpoint in the folder belongs to another training.
        """
        model, trainings = ChainModel.fit(
            train,
            val,
            space=action_space(train, "training"),
            settings=settings,
            seed=seed,
            context=context,
        )
        return Fitted(cls(model), trainings)

    @classmethod
    def load(
        cls, folder: Path, *, settings: ChainSettings, context: TrainingContext = TrainingContext()
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(ChainModel.load(folder, config=settings.chain, device=context.device))

    def save(self, folder: Path) -> None:
        """Write the chain."""
        self.model.save(folder)

    @property
    def horizon(self) -> int:
        """T."""
        return self.model.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.model.observation_dim

    @property
    def parameters(self) -> dict[str, int]:
        """Those of all members."""
        return {ChainModel.title: self.model.parameters}

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The likeliest task, whatever its sequence, [N], or the given ones."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.model.log_tasks(queries).argmax(axis=1), dtype=np.int64)

    @torch.inference_mode()
    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The likeliest sequences of each query.

        Raises:
            ConfigError: `top_k` below 1, or no sequence of any task satisfies the constraints.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        scores = self.model.scores(queries)
        if constraints:
            return [
                self._constrained(scores, queries, row, top_k, constraints)
                for row in range(len(queries))
            ]
        states, tasks = scores.states, None
        if queries.tasks is not None:
            tasks = torch.from_numpy(queries.tasks).to(self.model.device)
        best, values = scores.best(top_k, tasks)
        sums = scores.log_task_sums()
        total = sums.logsumexp(dim=1) if tasks is None else sums.gather(1, tasks[:, None])[:, 0]
        logs = (values - total[:, None]).double().cpu().numpy()
        of_tasks = np.exp((sums - total[:, None]).double().cpu().numpy())
        actions, own = (part[best].cpu().numpy() for part in (states.actions, states.tasks))
        searched = states.task_count if tasks is None else 1
        return [
            _plans(
                actions[row, kept],
                logs[row, kept],
                own[row, kept, 0],
                searched,
                of_tasks[row] if tasks is None else np.ones(states.task_count),
            )
            for row, kept in enumerate(np.isfinite(logs))
        ]

    def _constrained(
        self,
        scores: SequenceScores,
        queries: Queries,
        row: int,
        top_k: int,
        constraints: Constraints,
    ) -> Plans:
        """The likeliest allowed sequences of one query, task by task."""
        states, refusals = scores.states, []
        tasks = range(states.task_count) if queries.tasks is None else [int(queries.tasks[row])]
        sums = scores.rows(slice(row, row + 1)).log_task_sums()[0, list(tasks)].double().cpu()
        total = float(sums.logsumexp(dim=0))
        of_tasks = np.zeros(states.task_count)
        of_tasks[list(tasks)] = (sums - total).exp().numpy()
        parts = []
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
                guide=costs,
            )
            try:
                cheapest = Space(problem, self.horizon).cheapest(costs, max(top_k, _COMPARED))
            except ConfigError as refusal:
                refusals.append(refusal)
                continue
            sequences = np.asarray(actions)[cheapest.sequences]
            parts.append((sequences, -cheapest.costs - total, np.full(len(sequences), task)))
        if not parts:
            raise refusals[0]
        sequences, logs, found = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(-logs, kind="stable")[:top_k]
        plans = _plans(sequences[order], logs[order], found[order], len(tasks), of_tasks)
        shares = np.exp(logs[order] - np.logaddexp.reduce(logs))
        return replace(plans, probabilities=shares, searched_mass=None)


def _plans(
    actions: NDArray[np.int64],
    logs: NDArray[np.float64],
    tasks: NDArray[np.int64],
    searched: int,
    of_tasks: NDArray[np.float64],
) -> Plans:
    return Plans(
        actions=actions,
        energies=-logs,
        scores=-logs,
        evaluated=Effort(token_forwards=2, leaves=0),
        exact=True,
        tasks=tasks,
        searched=searched,
        probabilities=np.exp(logs),
        task_probabilities=of_tasks[tasks],
        searched_mass=1.0,
    )
