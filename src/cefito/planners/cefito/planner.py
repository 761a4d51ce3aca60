"""The planner CEFITO: likely tasks restrict the actions, energy and chain score, a search plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Taxonomy
from cefito.data.windows import ActionSpace, Windows, action_space, extended_space
from cefito.field.energy import EnergyField
from cefito.field.fields import CompositeField, SearchedField, parameter_count
from cefito.planners.base import (
    Abilities,
    Description,
    Fitted,
    Marginals,
    Queries,
    Shape,
    Vocabulary,
)
from cefito.planners.base_planner import BasePlanner
from cefito.planners.cefito.files import read_planner, warn_fallback, write_planner
from cefito.planners.cefito.fit import FIELD, field_size, fit_parts, further_vectors
from cefito.planners.cefito.hypotheses import (
    Hypotheses,
    NoField,
    NoTaskModel,
    TaskSpaces,
    UniformSequenceModel,
    check_settings,
    merged,
    no_plans,
    searched_together,
)
from cefito.planners.cefito.listing import Listing
from cefito.planners.cefito.method import ABILITIES
from cefito.planners.cefito.objective import (
    Hypothesis,
    ObjectiveFit,
    Posterior,
    Weights,
)
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.chain.model import ChainEvidence, ChainModel
from cefito.planners.checks import check_finite, check_queries
from cefito.planners.network import ends_on_all, final_windows
from cefito.planners.shared.task_model import TaskModel
from cefito.progress import Progress, silent
from cefito.runtime import full_precision
from cefito.search.base import Search, SpaceSize, Watch, operations
from cefito.search.beam import KBestSearch
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.prior import NGramPrior
from cefito.search.problem import Plans
from cefito.search.settings import SearchConfig, make_search
from cefito.training.trainer import TrainingContext

_CHEAP = 1e9  # operations (a tenth of a second) below which tasks need not be predicted
_LEAST, _USUAL = 16, 512  # least queries of a block; larger blocks are multiples


@dataclass(frozen=True, kw_only=True, repr=False)
class CefitoPlanner(BasePlanner):
    """The paper's planner: task classifier, energy field and search, and what goes beyond it."""

    abilities: ClassVar[Abilities] = ABILITIES
    name = "CEFITO"
    settings: CefitoSettings
    taxonomy: Taxonomy
    space: ActionSpace  # actions of each task
    incremental: SearchedField | NoField  # the trained field, as searches walk it
    prior: NGramPrior  # over sequences
    fitted: ObjectiveFit = ObjectiveFit()  # noqa: RUF009
    chain: ChainModel | None = None  # None for an imported run
    task_model: TaskModel | None = None  # task classifier, if the settings choose one

    @classmethod
    def sizes(cls, settings: CefitoSettings, shape: Shape) -> dict[str, int]:
        """Return the sizes of task classifier and field; the chain is not in the paper."""
        sizes = {FIELD: field_size(settings.field, shape)} if settings.field.members else {}
        if settings.search.task_model == "classifier":
            sizes |= TaskModel.size(settings, shape)
        return sizes

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
        on these. Checkpoints and metrics are in the folders `classifier/`, `chain/`, `field/` and,
        for further components of the field, `field-backward/` etc.

        Raises:
            SamplingError: Too few sequences for the configured negatives.
            RunError: A checkpoint in the folder belongs to another training.
        """
        windows = final_windows(train, val, settings.chain_training)
        space = action_space(windows, settings.search.actions)
        return cls._fitted(train, val, space, settings=settings, seed=seed, context=context)

    def refit(
        self,
        train: Windows,
        val: Windows,
        *,
        settings: CefitoSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Return a planner that begins with these networks and is trained on further windows.

        Networks that this planner lacks are drawn anew. Counts of further windows are added to the
        prior; the weights of the objective are fitted on the validation windows alone.

        Raises:
            ConfigError: New actions need text embeddings that the windows do not have.
        """
        if not isinstance(self.incremental, NoField):
            further_vectors(train, self.field)  # refuses before any network is trained
        windows = final_windows(train, val, settings.chain_training)
        space = extended_space(
            self.space.actions, windows, settings.search.actions, self.space.fallback
        )
        return self._fitted(
            train, val, space, settings=settings, seed=seed, context=context, start=self
        )

    @classmethod
    def _fitted(
        cls,
        train: Windows,
        val: Windows,
        space: ActionSpace,
        start: Self | None = None,
        **given: Any,
    ) -> Fitted[Self]:
        warn_fallback(space, train.taxonomy)
        parts, trainings = fit_parts(train, val, space, start=vars(start) if start else {}, **given)
        on_all = ends_on_all(given["settings"].chain_training, val)
        return Fitted(cls(**parts), trainings, on_all)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: CefitoSettings,  # noqa: ARG003
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """Load the planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files.
        """
        planner = cls(**read_planner(Path(folder), context))
        warn_fallback(planner.space, planner.taxonomy)
        return planner

    def save(self, folder: Path | str) -> None:
        """Write weights, action space, taxonomy and settings."""
        parts = vars(self) | {"observation_dim": self.observation_dim}
        write_planner(parts, Path(folder))

    @property
    def horizon(self) -> int:
        """T, the number of actions of its plans."""
        return self.incremental.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        if isinstance(self.incremental, NoField):
            return self.incremental.observation_dim
        return self.field.predictor.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(len(self.taxonomy.tasks), len(self.taxonomy.actions))

    @property
    def networks(self) -> tuple[TaskModel | ChainModel, ...]:
        """The networks besides the field."""
        return tuple(network for network in (self.task_model, self.chain) if network is not None)

    @property
    def field(self) -> EnergyField | CompositeField:
        """The trained energy field.

        Raises:
            RunError: None was trained.
        """
        return self.incremental.field

    @property
    def hypotheses(self) -> Hypotheses:
        """Makes the problems of queries, with null models for missing networks."""
        by_chain = self.settings.search.task_model == "chain"
        return Hypotheses(
            space=self.space,
            prior=self.prior,
            sequences=self.chain or UniformSequenceModel(self.space, self.horizon),
            task_model=None if by_chain else self.task_model or NoTaskModel(),
            fitted=self.fitted,
        )

    @property
    def tasks(self) -> int:
        """Number of a query's likeliest tasks that are searched."""
        return self.settings.search.tasks or self.fitted.tasks

    @property
    def weights(self) -> Weights:
        """Weights of the current objective."""
        weights = self._fitted_weights
        return replace(weights, task=0.0) if self.tasks == 1 else weights  # the same for every plan

    @property
    def _fitted_weights(self) -> Weights:
        """Weights of the current objective, as if several tasks were searched."""
        settings, fitted = self.settings.search, self.fitted
        likelihood = settings.objective == "likelihood"
        weights = fitted.guide if likelihood else fitted.weights[settings.objective]
        return (
            weights if settings.prior_weight < 0 else replace(weights, prior=settings.prior_weight)
        )

    @property
    def probable(self) -> bool:
        """Whether plans have probabilities: whether the objective contains the chain."""
        return self.chain is not None and self.weights.chain > 0

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of each network."""
        parameters: dict[str, int] = {}
        for ensemble in self.networks:
            parameters |= ensemble.parameters
        if not isinstance(self.incremental, NoField):
            parameters[FIELD] = parameter_count(self.field)
        return parameters

    def describe(self) -> Description:
        """Return its networks, search and weights, and the source of the tasks' actions."""
        return Description(
            name=self.name,
            parameters=self.parameters,
            search=self.settings.search,
            weights=vars(self.weights),
            tasks=self.tasks,
            actions_from=self.space.source,
            tasks_without_training=self.space.fallback,
            probabilities=self.probable,
            evidence=self.fitted.evidence,
        )

    def with_search(self, settings: SearchConfig) -> Self:
        """Return a planner with other search settings; the source of actions stays as trained."""
        kept = settings.model_copy(update={"actions": self.settings.search.actions})
        return replace(self, settings=self.settings.model_copy(update={"search": kept}))

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """Return the likeliest tasks [N], or the given ones; plans may have other tasks."""
        hypotheses, blocks = self.hypotheses, queries.blocks(self.queries_at_once)
        tasks = [one.task for block in blocks for one in hypotheses.of(block, 1)]
        return np.array(tasks, dtype=np.int64)

    @full_precision()
    def marginals(self, queries: Queries) -> Marginals:
        """Return the task model's probabilities of tasks and the chain's of steps."""
        found = Marginals()
        if self.chain is not None:
            found = self.chain.evidence(queries).marginals(queries.tasks)
        if self.settings.search.task_model == "classifier":
            model = self.task_model
            found = found._replace(tasks=None if model is None else model.probabilities(queries))
        return found

    def most_operations(
        self, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
    ) -> NDArray[np.float64]:
        """Return the most floating-point operations that the search of each query may take [N]."""
        if not self.weights.energy:
            return np.zeros(len(queries))
        search, field = self._search(), cast("SearchedField", self.incremental)
        wanted = max(top_k, Posterior.COMPARED) if self.probable else top_k
        known: dict[SpaceSize, float] = {}  # many tasks have as many actions
        of_task = np.zeros(len(self.space.actions))
        free = self.settings.search.pruning < 0
        for task, actions in enumerate(self.space.actions):
            size = SpaceSize.of(actions, self.horizon, constraints, free=free)
            if size not in known:
                known[size] = operations(field, search.cost_bound(field, size, wanted))
            of_task[task] = known[size]
        if queries.tasks is not None:
            return of_task[queries.tasks]
        most = np.sort(of_task)[::-1][: self.tasks].sum()
        total = np.full(len(queries), most)
        if most > _CHEAP:
            total[:] = 0
            for one in self.hypotheses.of(queries, self.tasks):
                total[one.query] += of_task[one.task]
        return total

    @full_precision()
    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """Return the best sequences among the likeliest tasks of each query.

        Queries are processed in blocks, so that only observations and plans take memory for all.
        Once `stop` returns True, the best plans so far are returned.

        Raises:
            RunError: Observations of another dimension, or no task given and none predicted.
            DataError: Unknown tasks.
            ConfigError: No sequence of any likely task satisfies the constraints, or settings that
                need training windows which an imported run does not have.
        """
        check_queries(self, queries, top_k, constraints)
        settings, hypotheses = self.settings.search, self.hypotheses
        if self.chain is None:
            check_settings(settings)
        spaces = TaskSpaces(
            space=self.space,
            prior=self.prior,
            taxonomy=self.taxonomy,
            horizon=self.horizon,
            constraints=constraints,
            pruning=settings.pruning if settings.pruning >= 0 else None,
        )
        blocks = queries.blocks(self.queries_at_once)
        listed = self.chain is not None and self._listed(constraints)
        if constraints and len(blocks) > 1:  # refuse before any work
            for block in blocks:
                spaces.possible(hypotheses.of(block, self.tasks))
        plans: list[Plans] = []
        with progress("planning", total=len(queries)) as advance:
            for block in blocks:
                if listed and stop and stop():
                    plans += [no_plans(self.horizon)] * len(block)
                elif listed:
                    plans += self._listing(block).plans(top_k)
                    advance(len(block))
                else:
                    plans += self._planned(block, spaces, top_k, stop, advance, first=len(plans))
        return plans

    @property
    def queries_at_once(self) -> int:
        """Queries of a block, whose evidence and plans take an eighth of the memory bound."""
        each = self.tasks * (2048 + Posterior.COMPARED * (8 * self.horizon + 32))
        if self.chain is not None:  # the scores of all states, some of them padded, and copies
            states = self.chain.states
            each += 4 * self.horizon * 3 * (len(states) + states.grid.numel())
        count = int(self.settings.search.memory_mib * 2**20 / 8 / each)
        return max(_LEAST, count - count % _USUAL if count > _USUAL else count)

    def _listed(self, constraints: Constraints) -> bool:
        """Whether the plans of many queries are listed at once, without the field."""
        weights = self.weights
        return (
            not weights.energy
            and weights.chain > 0
            and self.settings.search.pruning < 0
            and not constraints
        )

    def _listing(self, queries: Queries) -> Listing:
        assert self.chain is not None
        return Listing(
            hypotheses=self.hypotheses,
            queries=queries,
            evidence=self.chain.evidence(queries),
            weights=self._fitted_weights,
            tasks=self.tasks,
        )

    def _planned(
        self,
        queries: Queries,
        spaces: TaskSpaces,
        top_k: int,
        stop: Callable[[], bool] | None,
        advance: Callable[[float], None],
        *,
        first: int = 0,
    ) -> list[Plans]:
        """Search the likely tasks of a block in batches, and merge the plans of each query."""
        hypotheses, search = self.hypotheses, self._search()
        field = cast("SearchedField", self.incremental)  # or none, which is not searched
        evidence = hypotheses.sequences.evidence(queries)
        tasks = spaces.possible(hypotheses.of(queries, self.tasks, evidence))
        posterior = None
        if self.probable and isinstance(evidence, ChainEvidence):
            posterior = Posterior.make(
                evidence,
                hypotheses.log_tasks(queries, evidence),
                self._fitted_weights,
                constrained=bool(spaces.constraints),
            )
        wanted = top_k if posterior is None or posterior.exact else max(top_k, Posterior.COMPARED)
        parts: list[list[tuple[Hypothesis, Plans]]] = [[] for _ in range(len(queries))]
        share = len(queries) / max(1, len(tasks))  # progress of one task, in queries

        def advanced(count: float = 1) -> None:
            advance(count * share)

        watch = Watch(advance=advanced, stop=stop) if stop else Watch(advance=advanced)
        left = sorted(tasks, key=lambda one: one.task)  # a task's queries share tables
        while left and not (stop and stop()):
            together = searched_together(left, self.space, self.prior, self.horizon)
            batch, left = left[:together], left[together:]
            problems = hypotheses.problems(
                queries,
                batch,
                evidence,
                horizon=self.horizon,
                weights=self.weights,
                constraints=spaces.constraints,
                pruning=spaces.pruning,
            )
            compiled = spaces.compiled(batch, problems)
            found = search.search(field, compiled, wanted, watch)
            for one, part in zip(batch, found, strict=True):
                check_finite(part, first + one.query)
                parts[one.query].append((one, part))
        missed = {one.query for one in left}  # stopped before all their tasks were searched
        answers = []
        for query, own in enumerate(parts):
            plans = merged(own, top_k) if own else no_plans(self.horizon)
            if posterior is not None:
                plans = posterior.weighed(query, plans, own)
            answers.append(replace(plans, exact=plans.exact and query not in missed))
        return answers

    def _search(self) -> Search:
        """Return the search; without the energy, the best sequences are listed exactly."""
        if self.weights.energy:
            _ = self.field  # refuses a run that has none
            return make_search(self.settings.search)
        return KBestSearch(memory_mib=self.settings.search.memory_mib)
