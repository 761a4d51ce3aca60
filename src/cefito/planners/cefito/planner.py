"""The planner CEFITO: likely tasks restrict the actions, energy and chain score, a search plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import ActionSpace, Windows, extended_space
from cefito.errors import ConfigError
from cefito.field.energy import EnergyField
from cefito.field.fields import CompositeField, SearchedField
from cefito.planners.base import Abilities, Description, Fitted, Marginals, Queries, Shape
from cefito.planners.base_planner import BasePlanner, check_finite, check_queries
from cefito.planners.cefito.files import read_planner, warn_fallback, write_planner
from cefito.planners.cefito.fit import FIELD, field_size, fit_parts, further_vectors
from cefito.planners.cefito.hypotheses import (
    CHAIN,
    ENERGY,
    Hypotheses,
    Hypothesis,
    Posterior,
    TaskSpaces,
    Weights,
    likely,
    merged,
    no_plans,
    searched_together,
)
from cefito.planners.cefito.method import ABILITIES, CefitoSettings
from cefito.planners.chain.model import ChainModel
from cefito.planners.chain.planner import likeliest_sequences
from cefito.planners.network import Sized, ends_on_all, final_windows
from cefito.planners.shared.settings import PlanningConfig
from cefito.planners.shared.task_model import TaskModel
from cefito.progress import Progress, silent
from cefito.runtime import count_parameters, full_precision
from cefito.search.base import Search, SpaceSize, Watch, operations
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.prior import NGramPrior
from cefito.search.problem import Best, Plans, SearchCost, Space, ranks
from cefito.search.settings import make_search

_CHEAP = 1e9  # operations (a tenth of a second) below which tasks need not be predicted
_LEAST, _USUAL = 16, 512  # least queries of a block; larger blocks are multiples


@dataclass(frozen=True, kw_only=True, repr=False)
class CefitoPlanner(Sized, BasePlanner):
    """The paper's planner: task classifier, energy field and search, and what goes beyond it."""

    abilities: ClassVar[Abilities] = ABILITIES
    settings: CefitoSettings
    taxonomy: Taxonomy
    space: ActionSpace  # allowed actions of each task
    incremental: SearchedField  # the trained energy field, in the form that searches use
    prior: NGramPrior  # probabilities of sequences
    fitted: Weights = CHAIN  # of the objective "fitted"
    chain: ChainModel | None = None  # None for an imported run
    task_model: TaskModel | None = None  # classifier; None if the settings choose none

    @classmethod
    def sizes(cls, settings: CefitoSettings, shape: Shape) -> dict[str, int]:
        """Return the sizes of task classifier and field; the chain is not in the paper."""
        sizes = {FIELD: field_size(settings.field, shape)}
        if settings.search.task_model == "classifier":
            sizes |= TaskModel.size(settings, shape)
        return sizes

    @classmethod
    def fit(cls, train: Windows, val: Windows, **options: Any) -> Fitted[Self]:
        """Train the networks, fit the prior and the weight of the energy.

        The networks keep the epoch that does best on the validation windows; the weight is fitted
        on these. Checkpoints and metrics are in the folders `classifier/`, `chain/`, `field/` and
        `field-backward/`.

        Raises:
            SamplingError: Too few sequences for the configured negatives.
            RunError: A checkpoint in the folder belongs to another training.
        """
        return cls._fitted(train, val, None, **options)

    def refit(self, train: Windows, val: Windows, **options: Any) -> Fitted[Self]:
        """Return a planner that begins with these networks and is trained on further windows.

        Networks that this planner lacks are drawn anew. Counts of further windows are added to the
        prior; the weight of the energy is fitted on the validation windows alone.

        Raises:
            ConfigError: New actions need text embeddings that the windows do not have.
        """
        further_vectors(train, self.field)  # refuses before any network is trained
        return self._fitted(train, val, self, **options)

    @classmethod
    def _fitted(
        cls, train: Windows, val: Windows, start: Self | None, **options: Any
    ) -> Fitted[Self]:
        settings: CefitoSettings = options["settings"]
        windows = final_windows(train, val, settings.chain_training)
        start_space = ActionSpace((), settings.search.actions, ()) if start is None else start.space
        space = extended_space(
            start_space.actions, windows, settings.search.actions, start_space.fallback
        )
        warn_fallback(space, train.taxonomy)
        parts, trainings = fit_parts(
            train, val, space, start=vars(start) if start else {}, **options
        )
        return Fitted(cls(**parts), trainings, ends_on_all(settings.chain_training, val))

    @classmethod
    def load(cls, folder: Path | str, **options: Any) -> Self:
        """Load the planner that was saved in a folder (RunError)."""
        planner = cls(**read_planner(Path(folder), **options))
        warn_fallback(planner.space, planner.taxonomy)
        return planner

    def save(self, folder: Path | str) -> None:
        """Write weights, action space, taxonomy and settings."""
        parts = vars(self) | {"observation_dim": self.observation_dim}
        write_planner(parts, Path(folder))

    @property
    def name(self) -> str:
        """Name in tables, by what its plans minimise."""
        names = {"energy": "CEFITO", "chain": "chain", "fitted": "CEFITO + chain"}
        return names[self.settings.search.objective]

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        return Shape(
            observation_dim=self.field.predictor.observation_dim,
            tasks=len(self.taxonomy.tasks),
            actions=len(self.taxonomy.actions),
            horizon=self.incremental.horizon,
        )

    @property
    def field(self) -> EnergyField | CompositeField:
        """The trained energy field."""
        return self.incremental.field

    @property
    def hypotheses(self) -> Hypotheses:
        """Makes the problems of queries."""
        return Hypotheses(
            space=self.space,
            prior=self.prior,
            chain=self.chain,
            task_model=self.task_model,
            by_chain=self.settings.search.task_model == "chain",
        )

    @property
    def weights(self) -> Weights:
        """Weights of the current objective."""
        return {"energy": ENERGY, "chain": CHAIN, "fitted": self.fitted}[
            self.settings.search.objective
        ]

    @cached_property
    def _search(self) -> Search:
        return make_search(self.settings.search)

    @property
    def probable(self) -> bool:
        """Whether plans have probabilities: whether the objective contains the chain."""
        return self.chain is not None and self.weights.chain > 0

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of each network."""
        parameters: dict[str, int] = {}
        for ensemble in (self.task_model, self.chain):
            parameters |= {} if ensemble is None else ensemble.parameters
        return {**parameters, FIELD: count_parameters(self.field)}

    def describe(self) -> Description:
        """Return its networks, search and weights, and the source of the tasks' actions."""
        return Description(
            name=self.name,
            parameters=self.parameters,
            search=self.settings.search,
            weights=vars(self.weights),
            tasks=self.settings.search.tasks,
            actions_from=self.space.source,
            tasks_without_training=self.space.fallback,
            probabilities=self.probable,
        )

    def with_search(self, settings: PlanningConfig) -> Self:
        """Return a planner with other search settings; the source of actions stays as trained."""
        kept = settings.model_copy(update={"actions": self.settings.search.actions})
        return replace(self, settings=self.settings.model_copy(update={"search": kept}))

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """Return the likeliest tasks [N], or the given ones; plans may have other tasks."""
        hypotheses, blocks = self.hypotheses, queries.blocks(self.queries_at_once)
        tasks = [hypothesis.task for block in blocks for hypothesis in hypotheses.of(block, 1)]
        return np.array(tasks, dtype=np.int64)

    @full_precision()
    def marginals(self, queries: Queries) -> Marginals:
        """Return the task model's probabilities of tasks and the chain's of steps."""
        marginals = Marginals()
        if self.chain is not None:
            marginals = self.chain.evidence(queries).marginals(queries.tasks)
        if self.settings.search.task_model == "classifier":
            model = self.task_model
            marginals = marginals._replace(
                tasks=None if model is None else model.probabilities(queries)
            )
        return marginals

    def most_operations(
        self, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
    ) -> NDArray[np.float64]:
        """Return the most floating-point operations that the search of each query may take [N]."""
        if not self.weights.energy:
            return np.zeros(len(queries))
        search, field = self._search, self.incremental
        wanted = max(top_k, Posterior.COMPARED) if self.probable else top_k
        by_size: dict[SpaceSize, float] = {}  # many tasks have as many actions
        of_task = np.zeros(len(self.space.actions))
        for task, actions in enumerate(self.space.actions):
            size = SpaceSize.of(actions, self.horizon, constraints)
            if size not in by_size:
                by_size[size] = operations(field, search.cost_bound(field, size, wanted))
            of_task[task] = by_size[size]
        if queries.tasks is not None:
            return of_task[queries.tasks]
        most = np.sort(of_task)[::-1][: self.settings.search.tasks].sum()
        total = np.full(len(queries), most)
        if most > _CHEAP:
            total[:] = 0
            for hypothesis in self.hypotheses.of(queries, self.settings.search.tasks):
                total[hypothesis.query] += of_task[hypothesis.task]
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
            ConfigError: No sequence of any likely task satisfies the constraints, or an objective
                with the chain, which an imported run does not have.
        """
        check_queries(self, queries, top_k, constraints)
        hypotheses, tasks = self.hypotheses, self.settings.search.tasks
        if self.chain is None and self.weights.chain:
            raise ConfigError(
                "this run was imported without training data, so it has no chain. Plan with the "
                "objective 'energy'.",
                setting="objective",
            )
        spaces = TaskSpaces(
            space=self.space, taxonomy=self.taxonomy, horizon=self.horizon, constraints=constraints
        )
        blocks = queries.blocks(self.queries_at_once)
        listed = not self.weights.energy and not constraints
        if constraints and len(blocks) > 1:  # refuse before any work
            for block in blocks:
                spaces.possible(hypotheses.of(block, tasks))
        plans: list[Plans] = []
        with progress("planning", total=len(queries)) as advance:
            for block in blocks:
                if listed and stop and stop():
                    plans += [no_plans(self.horizon)] * len(block)
                elif listed:
                    plans += self._listed(block, top_k)
                    advance(len(block))
                else:
                    plans += self._planned(block, spaces, top_k, stop, advance, first=len(plans))
        return plans

    @property
    def queries_at_once(self) -> int:
        """Queries of a block, whose evidence and plans take an eighth of the memory bound."""
        query_bytes = self.settings.search.tasks * (
            2048 + Posterior.COMPARED * (8 * self.horizon + 32)
        )
        if self.chain is not None:  # the scores of all states, some of them padded, and copies
            states = self.chain.states
            query_bytes += 4 * self.horizon * 3 * (len(states) + states.grid.numel())
        count = int(self.settings.search.memory_mib * 2**20 / 8 / query_bytes)
        return max(_LEAST, count - count % _USUAL if count > _USUAL else count)

    def _listed(self, queries: Queries, top_k: int) -> list[Plans]:
        """List the likeliest sequences under the chain, summed over the likely tasks."""
        assert self.chain is not None
        evidence = self.chain.evidence(queries)
        log_tasks = self.hypotheses.log_tasks(queries, evidence)  # [N, C]
        tasks = 1 if queries.tasks is not None else self.settings.search.tasks
        ranked, kept = likely(log_tasks, tasks)
        # probabilities are shares of all sequences of all tasks, log Σ q(c, a), [N]
        log_possible = np.where(np.isfinite(evidence.sums), log_tasks, -np.inf)
        total = np.logaddexp.reduce(log_possible, axis=1)
        searched = np.full_like(log_tasks, -np.inf)
        log_kept = np.where(kept, np.take_along_axis(log_tasks, ranked, axis=1), -np.inf)
        np.put_along_axis(searched, ranked, log_kept, axis=1)
        listings = likeliest_sequences(
            evidence.weighed(searched),
            top_k,
            torch.from_numpy(np.sort(ranked, axis=1)).to(evidence.scores.emissions.device),
        )
        return [
            Plans(
                actions=listing.actions,
                energies=-listing.logs,
                scores=-listing.logs,
                evaluated=SearchCost(0, 0),
                exact=listing.exact,
                tasks=listing.tasks,
                searched=int(count),
                probabilities=np.exp(listing.logs - log_total),
                task_probabilities=np.exp(row[listing.tasks]),
                searched_mass=1.0,
            )
            for listing, log_total, row, count in zip(
                listings, total, log_tasks, kept.sum(axis=1), strict=True
            )
        ]

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
        hypotheses, field = self.hypotheses, self.incremental
        search = self._search if self.weights.energy else None
        uses_chain = self.weights.chain or hypotheses.by_chain
        evidence = self.chain.evidence(queries) if self.chain and uses_chain else None
        tasks = hypotheses.of(queries, self.settings.search.tasks, evidence)
        tasks = spaces.possible(tasks)
        posterior, wanted = None, top_k
        if self.weights.chain and evidence is not None:
            log_tasks = hypotheses.log_tasks(queries, evidence)
            posterior = Posterior(evidence, log_tasks, constrained=bool(spaces.constraints))
            wanted = max(top_k, Posterior.COMPARED)
        parts: list[list[tuple[Hypothesis, Plans]]] = [[] for _ in range(len(queries))]
        share = len(queries) / max(1, len(tasks))  # progress of one task, in queries

        def advanced(count: float = 1) -> None:
            advance(count * share)

        watch = Watch(advance=advanced, stop=stop) if stop else Watch(advance=advanced)
        # a task's queries share tables
        left = sorted(tasks, key=lambda hypothesis: hypothesis.task)
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
            )
            compiled = spaces.compiled(batch, problems)
            if search is None:
                batch_plans = [_cheapest(space, wanted) for space in compiled]
                advanced(len(batch))
            else:
                batch_plans = search.search(field, compiled, wanted, watch)
            for hypothesis, task_plans in zip(batch, batch_plans, strict=True):
                check_finite(task_plans, first + hypothesis.query)
                parts[hypothesis.query].append((hypothesis, task_plans))
        # stopped before all their tasks were searched
        missed = {hypothesis.query for hypothesis in left}
        answers = []
        for query, by_hypothesis in enumerate(parts):
            plans = merged(by_hypothesis, top_k) if by_hypothesis else no_plans(self.horizon)
            if posterior is not None:
                plans = posterior.weighed(query, plans, by_hypothesis)
            answers.append(replace(plans, exact=plans.exact and query not in missed))
        return answers


def _cheapest(space: Space, count: int) -> Plans:
    """Return the sequences of least cost under an objective without the energy, exactly."""
    cheapest = space.cheapest(space.guide, count)
    scores, best = cheapest.costs + space.objective.offset, Best(count)
    best.add(scores, ranks(cheapest.sequences, space.size), scores)
    cost = SearchCost(0, 0)
    return best.plans(space.problem, space.horizon, cost, exact=cheapest.complete)
