"""Hypotheses: the tasks that a query may belong to, and a search problem for each.

Null models stand in for networks that a run does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.annotations import Taxonomy
from cefito.data.windows import ActionSpace
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries
from cefito.planners.cefito.objective import UNFITTED, Hypothesis, ObjectiveFit, Weights
from cefito.planners.chain.model import ChainEvidence
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.cost_batch import CostBatch
from cefito.search.feasible import Feasible
from cefito.search.prior import NGramPrior
from cefito.search.problem import Objective, Plans, Problem, SearchCost, Space
from cefito.search.settings import SearchConfig
from cefito.search.step_costs import StepCosts


class NoField:
    """Stand-in for an energy field of a run that trained none."""

    def __init__(self, horizon: int, observation_dim: int) -> None:
        self.horizon, self.observation_dim = horizon, observation_dim

    @property
    def field(self) -> NoReturn:
        """Refuse."""
        raise RunError(
            "this run has no energy field (field.members = 0). Train one with field.members = 1.",
            setting="objective",
        )


class NoTaskModel:
    """Stand-in for a task classifier: tasks must be given."""

    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:  # noqa: ARG002
        """Refuse."""
        raise RunError(
            "this run has no task classifier, so tasks must be given. Or add one: cefito "
            "import-checkpoint FILE --kind task-classifier --out RUN.",
            setting="task",
        )


@dataclass(frozen=True)
class UniformSequenceModel:
    """Stand-in for a chain: all sequences of a task are equally likely."""

    space: ActionSpace
    horizon: int

    def evidence(self, queries: Queries) -> UniformSequenceModel:  # noqa: ARG002
        """Return itself: it does not depend on the queries."""
        return self

    def log_tasks(self) -> NDArray[np.float64]:
        """Refuse."""
        raise RunError(
            "this run was imported without a chain to predict tasks by.", setting="task_model"
        )


def check_settings(settings: SearchConfig) -> None:
    """Refuse settings that need training windows."""
    if settings.objective != "energy" or settings.pruning >= 0 or settings.prior_weight > 0:
        raise ConfigError(
            "this run was imported without training data, so it has neither a prior over sequences "
            "nor a chain. Plan with the objective 'energy', without pruning and a weight of the "
            "prior.",
            setting="objective",
        )


_PLAUSIBLE = np.log(1e-3)
"""Least log-probability of a task that is searched besides the likeliest."""
_PRIOR = Weights(energy=0.0, prior=1.0)
# most problems searched at once; fewer if they have more candidates, so that progress is visible,
# or if the prior's tables of their tasks take more MiB
_TOGETHER, _CANDIDATES, _TABLES_MIB = 64, 500_000, 64


SequenceEvidence = ChainEvidence | UniformSequenceModel
"""Probabilities of the sequences of some queries."""


class SequenceModel(Protocol):
    """Model of the probabilities of sequences."""

    def evidence(self, queries: Queries) -> SequenceEvidence:
        """Return the probabilities for some queries."""


class TaskProbabilities(Protocol):
    """Model of the probabilities of tasks."""

    def log_probabilities(self, queries: Queries) -> NDArray[np.float32]:
        """Return log p(task | observations), [N, |C|]."""


@dataclass(frozen=True)
class Hypotheses:
    """Makes the problems of queries."""

    space: ActionSpace
    prior: NGramPrior
    sequences: SequenceModel  # model of the probabilities of sequences
    # model of the probabilities of tasks; None for the model of sequences
    task_model: TaskProbabilities | None
    # weights of the objectives and of the guide, and the number of tasks to search
    fitted: ObjectiveFit = UNFITTED

    def log_tasks(
        self, queries: Queries, evidence: SequenceEvidence | None = None
    ) -> NDArray[np.float64]:
        """Return log p of each task [N, C]; 0 and −∞ if the task is given; arguments as `of`."""
        if queries.tasks is not None:
            given = np.arange(len(self.space.actions)) == queries.tasks[:, None]
            return np.where(given, 0.0, -np.inf)
        if self.task_model is None:
            return (evidence or self.sequences.evidence(queries)).log_tasks()
        return self.task_model.log_probabilities(queries).astype(np.float64)

    def of(
        self, queries: Queries, tasks: int, evidence: SequenceEvidence | None = None
    ) -> list[Hypothesis]:
        """Return the likeliest tasks of each query, likeliest first, or the given one."""
        if queries.tasks is not None:
            return [
                Hypothesis(query=row, task=int(task), log_probability=0.0)
                for row, task in enumerate(queries.tasks)
            ]
        logs = self.log_tasks(queries, evidence)
        ranked, kept = likely(logs, tasks)
        return [
            Hypothesis(query=int(row), task=int(task), log_probability=float(logs[row, task]))
            for row, task in zip(kept.nonzero()[0], ranked[kept], strict=True)
        ]

    def problems(
        self,
        queries: Queries,
        hypotheses: Sequence[Hypothesis],
        evidence: SequenceEvidence,
        *,
        horizon: int,
        weights: Weights,
        constraints: Constraints = UNCONSTRAINED,
        pruning: int | None = None,
    ) -> list[Problem]:
        """Return the problem of each hypothesis.

        The guide is the objective without the energy; or the prior alone if the objective does not
        contain the chain, since sequences of low energy need not be likely under the chain.
        """
        # pruning: allow only transitions seen in training windows of the task and so many likely
        # others; None allows all
        guide_weights = self.fitted.guide if weights.chain else _PRIOR
        by_task: dict[int, list[int]] = defaultdict(list)  # places of the hypotheses of a task
        for place, hypothesis in enumerate(hypotheses):
            by_task[hypothesis.task].append(place)
        problems: dict[int, Problem] = {}
        for task, members in by_task.items():
            actions = self.space.actions[task]
            rows = np.array([hypotheses[place].query for place in members])
            found = guides = None
            if guide_weights.prior or guide_weights.chain:
                guides = self.costs(evidence, rows, task, horizon, guide_weights)
            if (guide_weights.prior, guide_weights.chain) == (weights.prior, weights.chain):
                found = guides  # whose cheapest sequences are then listed once
            elif weights.prior or weights.chain:
                found = self.costs(evidence, rows, task, horizon, weights)
            pruned = None
            if pruning is not None:
                pruned = self.prior.pruned(task, horizon, pruning, actions)
            for row, place in enumerate(members):
                hypothesis = hypotheses[place]
                costs = pruned if found is None else found.row(row)
                if pruned is not None and found is not None:
                    costs = found.row(row) + pruned
                free = StepCosts.free(horizon, len(actions))
                problems[place] = Problem(
                    initial=queries.initial[hypothesis.query],
                    goal=queries.goal[hypothesis.query],
                    actions=actions,
                    constraints=constraints,
                    objective=Objective(
                        temperature=1 / max(weights.energy, 1e-9),
                        costs=costs,
                        offset=-weights.task * hypothesis.log_probability,
                    ),
                    guide=free if guides is None else guides.row(row),
                )
        return [problems[place] for place in range(len(hypotheses))]

    def costs(
        self,
        evidence: SequenceEvidence,
        queries: NDArray[np.int64],
        task: int,
        horizon: int,
        weights: Weights,
    ) -> CostBatch:
        """Return the weighted costs of prior and chain of some queries [B], one of them at least.

        prior · −log p(sequence | task) + chain · −log q(sequence | task, observations)
        """
        actions = self.space.actions[task]
        chain = _sequence_costs(evidence, queries, task, len(actions))
        terms = []
        if weights.prior:
            terms.append(self.prior.costs(task, horizon, actions) * weights.prior)
        if weights.chain:
            terms.append(chain.shared * weights.chain)
        own = weights.chain * chain.own if weights.chain else np.zeros_like(chain.own)
        return CostBatch(own, sum(terms[1:], terms[0]))


def likely(
    log_tasks: NDArray[np.float64],  # log-probability of each task [N, C]
    tasks: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return so many likeliest tasks of each query [N, n], and whether each is to be searched."""
    ranked = np.argsort(-log_tasks, axis=1, kind="stable")[:, :tasks]
    kept = np.take_along_axis(log_tasks, ranked, axis=1) >= _PLAUSIBLE
    kept[:, :1] = True
    return ranked, kept


def merged(found: Sequence[tuple[Hypothesis, Plans]], top_k: int) -> Plans:
    """Return the best plans over the hypotheses of one query, each sequence once."""
    actions = np.concatenate([plans.actions for _, plans in found])
    energies, scores = (
        np.concatenate(parts)
        for parts in zip(*((plans.energies, plans.scores) for _, plans in found), strict=True)
    )
    tasks = np.repeat(
        [hypothesis.task for hypothesis, _ in found], [len(plans) for _, plans in found]
    )
    log_tasks = np.array([hypothesis.log_probability for hypothesis, _ in found])
    order = np.lexsort((*actions.T[::-1], scores))
    kept: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for row in order.tolist():
        if len(kept) < top_k and (sequence := tuple(actions[row].tolist())) not in seen:
            seen.add(sequence)
            kept.append(row)
    effort = sum((plans.evaluated for _, plans in found), SearchCost(0, 0))
    return Plans(
        actions=actions[kept],
        energies=energies[kept],
        scores=scores[kept],
        evaluated=effort,
        exact=all(plans.exact for _, plans in found),
        tasks=tasks[kept],
        searched=len(found),
        task_probabilities=np.repeat(np.exp(log_tasks), [len(plans) for _, plans in found])[kept],
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


def _sequence_costs(
    evidence: SequenceEvidence, queries: NDArray[np.int64], task: int, size: int
) -> CostBatch:
    """Return −log q(sequence | task, observations) of queries [B], over the task's A actions."""
    if isinstance(evidence, UniformSequenceModel):
        shape = (len(queries), evidence.horizon, size)
        return CostBatch(np.zeros(shape), StepCosts.free(evidence.horizon, size))
    scores, rows = evidence.scores, torch.from_numpy(queries).to(evidence.scores.emissions.device)
    states = scores.states.grid[task, :size]
    # −log q(a) = −Σ_t e_t(a_t) − Σ_t w(a_t−1, a_t) + log Σ exp(score) of the task
    own = -scores.emissions[rows[:, None], :, states].transpose(1, 2).double().cpu().numpy()
    own[:, 0] += evidence.sums[queries, task][:, None]  # [B, T, A]
    transitions = -scores.transitions[task, :size, :size].double().cpu().numpy()
    shared = StepCosts(costs=(np.zeros(size), *[transitions] * (scores.horizon - 1)))
    return CostBatch(own, shared)


class TaskSpaces:
    """Compiles the problems of queries; constraints once for each task."""

    def __init__(
        self,
        *,
        space: ActionSpace,
        prior: NGramPrior,
        taxonomy: Taxonomy,
        horizon: int,
        constraints: Constraints = UNCONSTRAINED,
        pruning: int | None = None,  # number of unseen transitions allowed; None allows all
    ) -> None:
        self.space, self.prior, self.taxonomy = space, prior, taxonomy
        self.horizon, self.constraints, self.pruning = horizon, constraints, pruning
        self._tasks: dict[int, Feasible | ConfigError | None] = {}

    def possible(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return the hypotheses whose task has a sequence that satisfies the constraints."""
        kept = [one for one in hypotheses if not isinstance(self._task(one.task), ConfigError)]
        left = {hypothesis.query for hypothesis in kept}
        refusals: dict[int, list[str]] = defaultdict(list)
        for hypothesis in hypotheses:
            refusal = self._task(hypothesis.task)
            if hypothesis.query not in left and isinstance(refusal, ConfigError):
                name = self.taxonomy.tasks[hypothesis.task].name
                refusals[hypothesis.query].append(f"task {hypothesis.task} ('{name}'): {refusal}")
        for lines in refusals.values():
            raise ConfigError(lines[0] + _others(len(lines) - 1))
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
            actions = self.space.actions[task]
            try:
                costs = None
                if self.pruning is not None:
                    costs = self.prior.pruned(task, self.horizon, self.pruning, actions)
                nowhere = np.zeros(0, dtype=np.float32)
                problem = Problem(
                    initial=nowhere,
                    goal=nowhere,
                    actions=actions,
                    constraints=self.constraints,
                    objective=Objective(costs=costs),
                )
                self._tasks[task] = Space(problem, self.horizon).feasible
            except ConfigError as refusal:
                self._tasks[task] = refusal
        return self._tasks[task]


def _others(count: int) -> str:
    if count == 0:
        return ""
    if count == 1:
        return " The next likely task cannot satisfy it either."
    return f" The next {count} likely tasks cannot satisfy it either."


def searched_together(
    hypotheses: Sequence[Hypothesis], space: ActionSpace, prior: NGramPrior, horizon: int
) -> int:
    """Return how many of these, ordered by task, are searched together."""
    sizes = {one.task: len(space.actions[one.task]) for one in hypotheses[:_TOGETHER]}
    most: int = max(1, min(_TOGETHER, _CANDIDATES // sizes[hypotheses[0].task] ** horizon))
    room = _TABLES_MIB * 2**20
    for task, size in list(sizes.items())[1:]:
        room -= prior.table_bytes(size)
        if room < 0:
            return min(most, [one.task for one in hypotheses].index(task))
    return most
