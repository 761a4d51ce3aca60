"""CEFITO: likely tasks restrict the actions, energy and chain score sequences, a search plans."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace, action_space
from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.field.joint import IncrementalJoint, JointField, incremental_field, parameter_count
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    Description,
    Fitted,
    Queries,
    check_queries,
)
from cefito.planners.cefito.absent import NoTaskModel, NothingLikely, check_settings
from cefito.planners.cefito.field_fit import FIELD, fit_field
from cefito.planners.cefito.fitting import fit_objective
from cefito.planners.cefito.hypotheses import (
    Hypotheses,
    Hypothesis,
    compiled_problems,
    merged,
    no_plans,
)
from cefito.planners.cefito.posterior import COMPARED, Posterior
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.cefito.weights import NOTHING_FITTED, ObjectiveFit, Weights
from cefito.planners.chain.model import ChainEvidence, ChainModel
from cefito.planners.networks import TrainingContext
from cefito.planners.task_model import TaskModel
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.likely import LikelySearch
from cefito.search.prior import NGramPrior
from cefito.search.problem import Plans, Watch
from cefito.search.registry import make_search
from cefito.search.settings import SearchConfig
from cefito.search.space import Space
from cefito.training.trainer import TrainingResult

__all__ = ["CefitoPlanner"]

logger = logging.getLogger(__name__)
# Most problems handed to the search at once; fewer where they have more candidates than this, so
# that progress is seen.
_TOGETHER, _CANDIDATES = 64, 500_000


@dataclass(frozen=True, kw_only=True)
class CefitoPlanner:
    """The paper's planner: task classifier, energy field and search, and what goes beyond it.

    Attributes:
        settings: All of its settings.
        taxonomy: Tasks and actions.
        space: Actions of each task.
        incremental: The trained energy field, as searches walk it.
        prior: Prior over sequences.
        fitted: Weights of the objectives, as fitted.
        chain: Says which sequences are likely, and of which task; None where none was trained.
        task_model: Predicts tasks where settings ask for a classifier; None where there is none.
    """

    abilities: ClassVar[Abilities] = Abilities(constraints=True, search=True, probabilities=True)
    name: ClassVar[str] = "CEFITO"
    settings: CefitoSettings
    taxonomy: Taxonomy
    space: ActionSpace
    incremental: IncrementalField | IncrementalJoint
    prior: NGramPrior
    fitted: ObjectiveFit = NOTHING_FITTED
    chain: ChainModel | None = None
    task_model: TaskModel | None = None

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: CefitoSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the networks, fit the prior and the weights of the objective.

        The networks keep the epoch that does best on the validation windows; the weights are fitted
        on these.

        Args:
            train: Training windows.
            val: Validation windows.
            settings: All settings.
            seed: Seed of everything drawn.
            context: Where it is trained; checkpoints and metrics go into `classifier/`, `chain/`
                and `field/` of its folder, those of further parts of the field beside the last.

        Raises:
            SamplingError: Too few sequences for the negatives asked for.
            RunError: A checkpoint in the folder belongs to another training.
        """
        space = action_space(train, settings.search.actions)
        _warn_fallback(space, train.taxonomy)
        trainings: dict[str, TrainingResult] = {}
        task_model = None
        if settings.search.task_model == "classifier":
            task_model, trainings[TaskModel.title] = TaskModel.fit(
                train, val, settings=settings, seed=seed, context=context
            )
        chain, chain_results = ChainModel.fit(
            train, val, space=space, settings=settings, seed=seed, context=context
        )
        field, field_results = fit_field(
            train, val, space=space, settings=settings, seed=seed, context=context
        )
        prior = NGramPrior.tuned(
            train.actions,
            train.tasks,
            action_count=len(train.taxonomy.actions),
            actions=space.actions,
            val_sequences=val.actions,
            val_tasks=val.tasks,
        )
        incremental = incremental_field(field)
        fitted = fit_objective(
            chain,
            incremental,
            prior,
            val,
            windows=settings.search.fitting_windows,
            progress=context.progress,
        )
        planner = cls(
            settings=settings,
            taxonomy=train.taxonomy,
            space=space,
            incremental=incremental,
            prior=prior,
            fitted=fitted,
            chain=chain,
            task_model=task_model,
        )
        return Fitted(planner, {**trainings, **chain_results, **field_results})

    @classmethod
    def load(
        cls, folder: Path, *, settings: CefitoSettings, context: TrainingContext = TrainingContext()
    ) -> Self:
        """The planner that was saved in a folder.

        Args:
            folder: The folder.
            settings: Replaced by those in the folder.
            context: Where it runs.

        Raises:
            RunError: Missing or damaged files.
        """
        del settings
        from cefito.planners.cefito.files import read_planner

        planner = cls(**read_planner(folder, device=context.device))
        _warn_fallback(planner.space, planner.taxonomy)
        return planner

    def save(self, folder: Path) -> None:
        """Write weights, action space, taxonomy and settings."""
        from cefito.planners.cefito.files import write_planner

        write_planner(self, folder)

    @property
    def horizon(self) -> int:
        """T of the trained field."""
        return self.field.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.field.predictor.observation_dim

    @property
    def networks(self) -> tuple[TaskModel | ChainModel, ...]:
        """The networks beside the field, as far as it has them."""
        return tuple(network for network in (self.task_model, self.chain) if network is not None)

    @property
    def field(self) -> EnergyField | JointField:
        """The trained energy field."""
        return self.incremental.field

    @property
    def hypotheses(self) -> Hypotheses:
        """What makes problems of queries, with stand-ins for networks that it lacks."""
        by_chain = self.settings.search.task_model == "chain"
        return Hypotheses(
            space=self.space,
            prior=self.prior,
            sequences=self.chain or NothingLikely(self.space, self.horizon),
            task_model=None if by_chain else self.task_model or NoTaskModel(),
            fitted=self.fitted,
        )

    @property
    def tasks(self) -> int:
        """How many of a query's likeliest tasks are searched."""
        return self.settings.search.tasks or self.fitted.tasks

    @property
    def weights(self) -> Weights:
        """Weights of the objective in force."""
        weights = self._fitted_weights
        return replace(weights, task=0.0) if self.tasks == 1 else weights  # the same for every plan

    @property
    def _fitted_weights(self) -> Weights:
        """Weights of the objective in force, as if several tasks were searched."""
        settings, fitted = self.settings.search, self.fitted
        likelihood = settings.objective == "likelihood"
        weights = fitted.guide if likelihood else fitted.weights[settings.objective]
        return (
            weights if settings.prior_weight < 0 else replace(weights, prior=settings.prior_weight)
        )

    @property
    def probable(self) -> bool:
        """Whether plans have probabilities: whether the objective holds the chain."""
        return self.chain is not None and self.weights.chain > 0

    def describe(self) -> Description:
        """Its networks, search and weights, and where the actions of tasks come from."""
        parameters = {network.title: network.parameters for network in self.networks}
        return Description(
            name=self.name,
            parameters=parameters | {FIELD: parameter_count(self.field)},
            search=self.settings.search,
            weights=vars(self.weights),
            tasks=self.tasks,
            actions_from=self.space.source,
            tasks_without_training=self.space.fallback,
            probabilities=self.probable,
            evidence=self.fitted.evidence,
        )

    def with_search(self, settings: SearchConfig) -> Self:
        """A planner that searches in another way.

        Where actions come from stays as it was trained.
        """
        kept = settings.model_copy(update={"actions": self.settings.search.actions})
        return replace(self, settings=self.settings.model_copy(update={"search": kept}))

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The likeliest tasks [N], or the given ones.

        Where several tasks are searched, plans name their own.
        """
        tasks = [hypothesis.task for hypothesis in self.hypotheses.of(queries, 1)]
        return np.array(tasks, dtype=np.int64)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """The best sequences among those of each query's likeliest tasks.

        Args:
            queries: Observations, perhaps with tasks.
            top_k: Plans a query; fewer where there are not so many sequences.
            constraints: What every plan must satisfy.
            stop: Asked now and then; once it says so, the best met so far is returned.
            progress: Shows progress.

        Raises:
            RunError: Observations of another dimension, or no task given and no classifier to
                predict it.
            ConfigError: No sequence of any likely task satisfies the constraints, or settings that
                imported weights cannot follow.
        """
        check_queries(self, queries, top_k, constraints)
        settings, hypotheses = self.settings.search, self.hypotheses
        if self.chain is None:
            check_settings(settings)
        evidence = hypotheses.sequences.evidence(queries)
        tasks = hypotheses.of(queries, self.tasks, evidence)
        problems = hypotheses.problems(
            queries,
            tasks,
            evidence,
            horizon=self.horizon,
            weights=self.weights,
            constraints=constraints,
            pruning=settings.pruning if settings.pruning >= 0 else None,
        )
        tasks, spaces = compiled_problems(
            tasks, problems, horizon=self.horizon, queries=len(queries), taxonomy=self.taxonomy
        )
        posterior = None
        if self.probable and isinstance(evidence, ChainEvidence):
            posterior = Posterior.make(
                evidence,
                hypotheses.log_tasks(queries, evidence),
                self._fitted_weights,
                constrained=bool(constraints),
            )
        return self._searched(len(queries), tasks, spaces, top_k, posterior, stop, progress)

    def _searched(
        self,
        queries: int,
        tasks: list[Hypothesis],
        spaces: list[Space],
        top_k: int,
        posterior: Posterior | None,
        stop: Callable[[], bool] | None,
        progress: Progress,
    ) -> list[Plans]:
        """Search compiled problems, a batch after the other, and merge those of each query."""
        wanted = top_k if posterior is None or posterior.exact else max(top_k, COMPARED)
        order = sorted(range(len(tasks)), key=lambda row: tasks[row].task)  # a task's together
        parts: list[list[tuple[Hypothesis, Plans]]] = [[] for _ in range(queries)]
        # what weighs nothing need not be searched: without the energy the best are listed exactly
        search = make_search(self.settings.search) if self.weights.energy else LikelySearch()
        with progress("planning", total=len(spaces)) as advance:
            watch = Watch(advance=advance, stop=stop) if stop else Watch(advance=advance)
            while order and not (stop and stop()):
                largest = spaces[order[0]].size ** self.horizon
                together = max(1, min(_TOGETHER, _CANDIDATES // largest))
                rows, order = order[:together], order[together:]
                batch = [spaces[row] for row in rows]
                plans = search.search(self.incremental, batch, wanted, watch)
                for row, part in zip(rows, plans, strict=True):
                    parts[tasks[row].query].append((tasks[row], part))
        missed = {tasks[row].query for row in order}  # stopped before all their tasks were searched
        best = [merged(part, top_k) if part else no_plans(self.horizon) for part in parts]
        if posterior is not None:
            best = [
                posterior.weighed(query, plans, part)
                for query, (plans, part) in enumerate(zip(best, parts, strict=True))
            ]
        return [
            replace(plans, exact=plans.exact and query not in missed)
            for query, plans in enumerate(best)
        ]


def _warn_fallback(space: ActionSpace, taxonomy: Taxonomy) -> None:
    if not space.fallback:
        return
    names = [f"{task} ('{taxonomy.tasks[task].name}')" for task in space.fallback[:3]]
    logger.warning(
        "tasks without training windows, which may use all actions that the taxonomy lists for "
        "them: %d, %s%s",
        len(space.fallback),
        ", ".join(names),
        ", …" if len(space.fallback) > len(names) else "",
    )
