"""CEFITO: a task classifier restricts the actions, an energy field scores sequences.

A search finds the best ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.action_space import ActionSpace, action_space
from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import Windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.planners.base import Queries
from cefito.planners.cefito.absent import NoProposals, NoTaskModel, check_settings
from cefito.planners.cefito.hypotheses import Hypotheses, Hypothesis, feasible, merged, no_plans
from cefito.planners.cefito.validation import validation_problems
from cefito.planners.cefito.weights import OBJECTIVES, Weights
from cefito.planners.networks import TrainingContext, parameters_of, results_of
from cefito.planners.proposal_model import ProposalModel
from cefito.planners.settings import RunConfig
from cefito.planners.task_model import TaskModel
from cefito.runtime import generator_for
from cefito.search.constraints import Constraints
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.prior import NGramPrior
from cefito.search.problem import Plans, Problem, Search, Watch
from cefito.search.registry import make_search
from cefito.search.settings import SearchConfig
from cefito.training.augmentation import ActionMeans
from cefito.training.checkpoint import load_weights
from cefito.training.distributed import Processes
from cefito.training.field_loss import FieldLoss
from cefito.training.trainer import TrainingResult

__all__ = ["CefitoPlanner"]

logger = logging.getLogger(__name__)
_TITLE = "energy field"
_REMEDY = "Train the run again (cefito train)."
_TOGETHER = 64  # most queries handed to the search at once
_CANDIDATES = (
    500_000  # and fewer where they have more candidates than this, so that progress is seen
)


class CefitoPlanner:
    """The paper's planner: task classifier, energy field and search.

    And what goes beyond it, as configured.

    Args:
        config: All settings of the run.
        context: Where it is trained; checkpoints and metrics go into `classifier/`, `proposal/` and
            `field/` of its folder.
        search: Another search than the configured one.
    """

    def __init__(
        self,
        *,
        config: RunConfig,
        context: TrainingContext = TrainingContext(),
        search: Search | None = None,
    ) -> None:
        self.config, self.context, self.device = config, context, torch.device(context.device)
        self._given_search = search
        self.task_model = TaskModel(
            config=config.classifier,
            training=config.classifier_training,
            context=context.part("classifier"),
        )
        self.proposal = ProposalModel(
            config=config.proposal,
            training=config.proposal_training,
            context=context.part("proposal"),
        )
        self.field: EnergyField | None = None
        self.hypotheses: Hypotheses | None = None
        self.space: ActionSpace | None = None
        self.taxonomy: Taxonomy | None = None
        self.result: TrainingResult | None = None
        self._incremental: IncrementalField | None = None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return "CEFITO"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the field's predictor, the task classifier and the proposal network."""
        field, _ = self._ready()
        fitted = (network for network in (self.task_model, self.proposal) if network.fitted)
        return parameters_of(*fitted) | {_TITLE: field.predictor.parameter_count()}

    @property
    def results(self) -> dict[str, TrainingResult]:
        """How its trainings went."""
        own = {} if self.result is None else {_TITLE: self.result}
        return results_of(self.task_model, self.proposal) | own

    @property
    def horizon(self) -> int:
        """T of the trained field."""
        return self._ready()[0].horizon

    @property
    def search(self) -> Search:
        """The search in use."""
        settings = self.config.search
        return self._given_search or make_search(
            settings.method,
            memory_mib=settings.memory_mib,
            budget_gflop=settings.budget_gflop,
            proposals=settings.proposals,
            starts=settings.starts,
            refinements=settings.refinements,
            width=settings.width,
            diversity=settings.diversity,
        )

    def use(self, settings: SearchConfig) -> None:
        """Search in another way from now on; where actions come from stays as it was trained.

        Args:
            settings: All settings of the search.
        """
        kept = settings.model_copy(update={"actions": self.config.search.actions})
        self.config = self.config.model_copy(update={"search": kept})

    def fit(self, train_windows: Windows, val: Windows, *, seed: int) -> None:
        """Train task classifier, proposal network and field.

        And fit the prior and the weights of the objective.

        The networks keep the epoch that does best on the validation windows; the weights are fitted
        on these.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            seed: Seed of everything drawn.

        Raises:
            SamplingError: Too few sequences for the negatives asked for.
            RunError: A checkpoint in the folder belongs to another training.
        """
        self.taxonomy = train_windows.taxonomy
        self.space = action_space(train_windows, self.config.search.actions)
        self._warn_fallback()
        self.task_model.fit(train_windows, val, seed=seed)
        observed = torch.from_numpy(
            np.concatenate([train_windows.initial, train_windows.goal]).mean(axis=0)
        )
        field = self._new_field(
            train_windows.initial.shape[1],
            train_windows.horizon,
            self._action_vectors(train_windows, observed),
        )
        field.reset(generator_for("cpu", seed, 3), mean=observed)
        field.to(self.device)
        training = self.config.training
        problems = validation_problems(
            val,
            self.space,
            windows=training.stopping.windows,
            candidates=training.stopping.candidates,
        )
        objective = FieldLoss(
            field=field,
            train=train_windows,
            actions=dict(enumerate(self.space.actions)),
            config=training,
            score=lambda trained, group: self._score(trained, *problems, group),
        )
        self.proposal.fit(
            train_windows, val, actions=dict(enumerate(self.space.actions)), seed=seed
        )
        self.result = self.context.part("field").train(
            _TITLE,
            objective,
            training,
            seed=seed,
            settings=[
                train_windows.horizon,
                self.config.field.model_dump(),
                training.model_dump(),
                self.config.search.actions,
            ],
        )
        self.field, self._incremental = field.eval(), IncrementalField(field)
        prior = NGramPrior.tuned(
            train_windows.actions,
            train_windows.tasks,
            action_count=len(self.taxonomy.actions),
            actions=self.space.actions,
            val_sequences=val.actions,
            val_tasks=val.tasks,
        )
        self.hypotheses = self.combined(prior=prior)
        with self.context.progress("fitting the objective", total=1) as advance:
            self.hypotheses.fit(
                self._incremental,
                val,
                windows=self.config.search.fitting_windows,
                memory_mib=self.config.search.memory_mib,
            )
            advance()

    def combined(self, *, prior: NGramPrior, **fitted: Any) -> Hypotheses:
        """What is asked of the networks, out of those that there are.

        Imported weights come without some.

        Args:
            prior: Prior over sequences.
            fitted: What else `Hypotheses` takes.
        """
        assert self.field is not None
        assert self.space is not None
        predictor = self.field.predictor
        task_model = self.task_model if self.task_model.fitted else NoTaskModel()
        proposal = (
            self.proposal
            if self.proposal.fitted
            else NoProposals(predictor.horizon, predictor.action_count)
        )
        return Hypotheses(
            space=self.space, task_model=task_model, prior=prior, proposal=proposal, **fitted
        )

    def _action_vectors(self, windows: Windows, mean: torch.Tensor) -> torch.Tensor | None:
        """Frozen vectors of the actions, as configured; None where they are learned."""
        if self.config.field.action_encoding == "observed":
            return ActionMeans(
                windows, mean if self.config.field.centre else torch.zeros_like(mean)
            ).all()
        return (
            None
            if windows.action_text is None
            else torch.from_numpy(windows.action_text.astype(np.float32))
        )

    def _new_field(
        self, observation_dim: int, horizon: int, action_vectors: torch.Tensor | None
    ) -> EnergyField:
        assert self.taxonomy is not None
        return EnergyField(
            config=self.config.field,
            observation_dim=observation_dim,
            horizon=horizon,
            action_count=len(self.taxonomy.actions),
            action_vectors=action_vectors,
        )

    def _score(
        self,
        field: EnergyField,
        problems: list[Problem],
        actual: NDArray[np.int64],
        group: Processes,
    ) -> Mapping[str, float]:
        """Success rate and mean accuracy, per cent, of plans for validation problems.

        Shared out over the processes.
        """
        mine = group.share(torch.arange(len(problems))).tolist()
        search = ExhaustiveSearch(memory_mib=self.config.search.memory_mib)
        plans = search.search(IncrementalField(field), [problems[index] for index in mine], 1)
        right = (
            np.array([plan.actions[0] for plan in plans]).reshape(-1, actual.shape[1])
            == actual[mine]
        )
        sums = torch.tensor(
            [right.all(axis=1).sum(), right.mean(axis=1).sum()],
            dtype=torch.float64,
            device=self.device,
        )
        success, accuracy = (100 * group.sum(sums) / len(problems)).tolist()
        return {"success_rate": success, "mean_accuracy": accuracy}

    def _warn_fallback(self) -> None:
        if self.space and self.space.fallback:
            assert self.taxonomy is not None
            names = [
                f"{task} ('{self.taxonomy.tasks[task].name}')" for task in self.space.fallback[:3]
            ]
            logger.warning(
                "tasks without training windows, which may use all actions that the taxonomy "
                "lists for them: "
                "%d, %s%s",
                len(self.space.fallback),
                ", ".join(names),
                ", …" if len(self.space.fallback) > len(names) else "",
            )

    def _ready(self) -> tuple[EnergyField, Hypotheses]:
        if self.field is None or self.hypotheses is None:
            raise RunError("this planner has not been fitted; call fit or load first.")
        return self.field, self.hypotheses

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The classifier's prediction [N], or the given tasks.

        Where several tasks are searched, plans name their own.
        """
        _, hypotheses = self._ready()
        return np.array([one.task for one in hypotheses.of(queries, 1)], dtype=np.int64)

    @property
    def weights(self) -> Weights:
        """Weights of the objective in force."""
        _, hypotheses = self._ready()
        settings = self.config.search
        weights = (
            hypotheses.guide
            if settings.objective == "likelihood"
            else hypotheses.weights[settings.objective]
        )
        if (settings.tasks or hypotheses.tasks) == 1:
            weights = replace(weights, task=0.0)  # the same for every plan
        return (
            weights if settings.prior_weight < 0 else replace(weights, prior=settings.prior_weight)
        )

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = Constraints(),
        stop: Callable[[], bool] | None = None,
    ) -> list[Plans]:
        """The best sequences among those of each query's likeliest tasks.

        Args:
            queries: Observations, perhaps with tasks.
            top_k: Plans a query; fewer where there are not so many sequences.
            constraints: What every plan must satisfy.
            stop: Asked now and then; once it says so, the best met so far is returned.

        Raises:
            RunError: Not fitted, observations of another dimension, or no task given and no
                classifier to predict it.
            ConfigError: No sequence of any likely task satisfies the constraints, or settings that
                imported weights cannot follow.
        """
        field, hypotheses = self._ready()
        if queries.initial.shape[1] != field.predictor.observation_dim:
            raise RunError(
                f"observations have {queries.initial.shape[1]} features; this run was trained on "
                f"{field.predictor.observation_dim}."
            )
        if self._incremental is None:
            self._incremental = IncrementalField(field)
        settings = self.config.search
        if not self.proposal.fitted:
            check_settings(settings)
        tasks = hypotheses.of(queries, settings.tasks or hypotheses.tasks)
        problems = hypotheses.problems(
            queries,
            tasks,
            weights=self.weights,
            constraints=constraints,
            pruning=settings.pruning if settings.pruning >= 0 else None,
        )
        if constraints or settings.pruning >= 0:
            tasks, problems = feasible(tasks, problems, field.horizon, len(queries))
        order = sorted(
            range(len(tasks)), key=lambda row: tasks[row].task
        )  # those of one task together
        found: list[list[tuple[Hypothesis, Plans]]] = [[] for _ in range(len(queries))]
        search = self.search
        with self.context.progress("planning", total=len(problems)) as advance:
            watch = Watch(advance=advance, stop=stop) if stop else Watch(advance=advance)
            while order and not (stop and stop()):
                largest = len(problems[order[0]].actions) ** field.horizon
                together = max(1, min(_TOGETHER, _CANDIDATES // largest))
                rows, order = order[:together], order[together:]
                for row, plans in zip(
                    rows,
                    search.search(self._incremental, [problems[row] for row in rows], top_k, watch),
                    strict=True,
                ):
                    found[tasks[row].query].append((tasks[row], plans))
        missed = {tasks[row].query for row in order}  # stopped before all their tasks were searched
        best = [merged(parts, top_k) if parts else no_plans(field.horizon) for parts in found]
        return [
            replace(plans, exact=plans.exact and query not in missed)
            for query, plans in enumerate(best)
        ]

    def save(self, folder: Path) -> None:
        """Write weights, action space, taxonomy and settings."""
        field, hypotheses = self._ready()
        assert self.taxonomy is not None
        write_tensors(folder / "field.safetensors", field.state_dict())
        networks = (self.task_model, self.proposal)
        for network in networks:
            if network.fitted:
                network.save(folder)
        write_tensors(folder / "prior.safetensors", hypotheses.prior.to_arrays())
        write_json(
            folder / "planner.json",
            {
                "planner": "cefito",
                "horizon": field.horizon,
                "observation_dim": field.predictor.observation_dim,
                "learned_actions": field.predictor.learned_actions,
                "config": self.config.model_dump(mode="json"),
                "action_space": hypotheses.space.to_dict(),
                "taxonomy": self.taxonomy.to_dict(),
                "weights": {name: vars(weights) for name, weights in hypotheses.weights.items()},
                "guide": vars(hypotheses.guide),
                "tasks": hypotheses.tasks,
                "lacks": [network.title for network in networks if not network.fitted],
            },
        )

    def load(self, folder: Path) -> None:
        """Read them back; the settings in the folder replace those given.

        Raises:
            RunError: Missing or damaged files.
        """
        path = folder / "planner.json"
        value = read_json(path, _REMEDY, RunError)
        tensors, _ = load_tensors(folder / "field.safetensors", "pt", _REMEDY, RunError)
        self.config = saved_config(value, folder)
        try:
            self.taxonomy = Taxonomy.from_dict(value["taxonomy"], place=str(path))
            self.space = ActionSpace.from_dict(value["action_space"])
            vectors = None if value["learned_actions"] else tensors.get("predictor.action_vectors")
            field = self._new_field(value["observation_dim"], value["horizon"], vectors)
            lacks = list(value.get("lacks", []))
        except (KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as problem:
            raise RunError(
                f"{path}: not a planner of this version ({problem!r}). {_REMEDY}"
            ) from problem
        load_weights(field, tensors, str(folder / "field.safetensors"))
        self.field, self._incremental = field.to(self.device).eval(), None
        self.task_model = TaskModel(
            config=self.config.classifier,
            training=self.config.classifier_training,
            context=self.context,
        )
        self.proposal = ProposalModel(
            config=self.config.proposal,
            training=self.config.proposal_training,
            context=self.context,
        )
        for network in (self.task_model, self.proposal):
            if network.title not in lacks:
                network.load(folder)
        arrays, _ = load_tensors(folder / "prior.safetensors", "np", _REMEDY, RunError)
        try:
            prior = NGramPrior.from_arrays(arrays)
        except (TypeError, ValueError, ConfigError) as problem:
            raise RunError(
                f"{folder / 'prior.safetensors'}: not a prior of this version ({problem!r}). "
                f"{_REMEDY}"
            ) from problem
        try:
            self.hypotheses = self.combined(
                prior=prior,
                weights={name: Weights(**value["weights"][name]) for name in OBJECTIVES},
                guide=Weights(**value["guide"]),
                tasks=int(value["tasks"]),
            )
        except (KeyError, TypeError, ValueError, ConfigError) as problem:
            raise RunError(
                f"{path}: weights of another version ({problem!r}). {_REMEDY}"
            ) from problem
        self._warn_fallback()


def saved_config(value: dict[str, Any], folder: Path) -> RunConfig:
    """The settings that a planner was saved with.

    Raises:
        RunError: They are not those of this version.
    """
    from pydantic import ValidationError

    try:
        return RunConfig.model_validate(value["config"])
    except (KeyError, TypeError, ValidationError) as problem:
        raise RunError(
            f"{folder / 'planner.json'}: settings of another version ({problem}). {_REMEDY}"
        ) from problem
