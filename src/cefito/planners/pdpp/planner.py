"""PDPP: projected diffusion for procedure planning (Wang et al., CVPR 2023).

Learned anew from its published facts.

A network learns to restore the actions of noised plans, given the task and the two observations; a
plan is denoised from noise in a few deterministic steps. The true task is given in training, the
predicted one when planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.field.predictor import Dropout
from cefito.planners.base import Queries
from cefito.planners.networks import TrainedNetwork, TrainingContext, parameters_of, results_of
from cefito.planners.pdpp.network import PdppNetwork, check_horizon
from cefito.planners.pdpp.settings import PdppConfig
from cefito.planners.settings import RunConfig
from cefito.planners.task_model import TaskModel
from cefito.runtime import generator_for
from cefito.search.chain import Chain
from cefito.search.problem import Effort, Plans
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term, TrainingResult

__all__ = ["PdppLoss", "PdppModel", "PdppPlanner"]

_BLOCK = 512  # queries denoised at once


class PdppLoss:
    """Squared error of the restored actions at random times, summed over a plan.

    The first and the last action weigh more.

    The error is averaged over a batch, where it was published as summed: AdamW's steps do not
    depend on the factor.

    Args:
        network: The network to train.
        train: Training windows, whose true tasks are given.
        val: Validation windows.
        tasks: The tasks that validation windows are planned for [N], as predicted when planning.
        config: Weights, changes of the observations, size of the sample of validation windows.
    """

    def __init__(
        self,
        *,
        network: PdppNetwork,
        train: Windows,
        val: Windows,
        tasks: NDArray[np.int64],
        config: PdppConfig,
    ) -> None:
        self.module, self.config = network, config
        device = network.mean.device
        self.observations = Observations(train, config.training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.weights = torch.ones(train.horizon, device=device)
        self.weights[[0, -1]] = config.ends
        sample = replace(val, tasks=tasks).sample(config.training.stopping.windows or None, seed=0)
        self.val = tuple(
            torch.from_numpy(part).to(device)
            for part in (sample.tasks, sample.initial, sample.goal, sample.actions)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The weighted squared error of a batch.

        Everything is drawn for the whole batch, then shared out.
        """
        initial, goal = self.observations.draw(rows, generator)
        times = torch.randint(
            1, self.config.steps + 1, (len(rows),), generator=generator, device=rows.device
        )
        clean = F.one_hot(self.actions[rows], self.module.action_count).float()
        noise = torch.randn(clean.shape, generator=generator, device=rows.device)
        tasks, initial, goal, times, clean, noise = (
            group.share(part) for part in (self.tasks[rows], initial, goal, times, clean, noise)
        )
        dropout = Dropout(self.config.dropout, generator) if self.config.dropout else None
        project = self.module.projection(tasks, initial, goal, dropout=dropout)
        matrix = self.module.diffusion.noised(project.filled(clean), project.filled(noise), times)
        restored = self.module(project(matrix), times)[
            ..., project.actions
        ]  # projected, the rest would have no error
        errors = (restored - clean).square().sum(dim=2) @ self.weights
        return {
            "squared_error": Term(
                1.0, errors.sum(), torch.tensor(len(errors), device=errors.device)
            )
        }

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy of the plans of the validation windows, in per cent.

        Every process does the same.
        """
        tasks, initial, goal, actions = self.val
        parts = zip(*(part.split(_BLOCK) for part in (tasks, initial, goal)), strict=True)
        right = torch.cat([self.module.scores(*part).argmax(dim=2) for part in parts]) == actions
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


class PdppModel(TrainedNetwork[PdppNetwork]):
    """The diffusion network with its training, saving and loading.

    Args:
        config: The network and how it is trained.
        context: Where it is trained.
    """

    title = "PDPP network"
    file = "pdpp.safetensors"

    def __init__(self, *, config: PdppConfig, context: TrainingContext = TrainingContext()) -> None:
        super().__init__(context=context)
        self.config = config

    def fit(
        self, train_windows: Windows, val: Windows, *, tasks: NDArray[np.int64], seed: int
    ) -> None:
        """Train the network on windows, keep the epoch of the best validation success rate.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            tasks: The tasks that validation windows are planned for [N].
            seed: Seed of weights, batches, times and noise.

        Raises:
            ConfigError: The horizon is too short for the configured network.
        """
        network = PdppNetwork(
            config=self.config,
            observation_dim=train_windows.initial.shape[1],
            horizon=train_windows.horizon,
            task_count=len(train_windows.taxonomy.tasks),
            action_count=len(train_windows.taxonomy.actions),
        )
        network.reset(generator_for("cpu", seed, 8))
        network.to(self.device)
        objective = PdppLoss(
            network=network, train=train_windows, val=val, tasks=tasks, config=self.config
        )
        if self.config.centre:
            network.mean.copy_(objective.observations.mean)
        self.result = self.context.train(
            self.title,
            objective,
            self.config.training,
            seed=seed,
            settings=[train_windows.horizon, self.config.model_dump(), tasks.tolist()],
        )
        self.network = network

    @torch.inference_mode()
    def scores(self, queries: Queries, tasks: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each action at each step of each query, planned for these tasks [N].

        As [N, T, K].

        Raises:
            RunError: Not fitted, observations of another dimension, or a task that the network does
                not know.
        """
        network = self.ready()
        initial, goal = self.observations(queries, network.observation_dim)
        unknown = tasks[(tasks < 0) | (tasks >= network.task_count)]
        if len(unknown):
            raise RunError(
                f"task {unknown[0]}: unknown. This run knows the tasks 0 to "
                f"{network.task_count - 1}."
            )
        parts = zip(
            *(
                part.split(_BLOCK)
                for part in (torch.from_numpy(tasks).to(self.device), initial, goal)
            ),
            strict=True,
        )
        return np.concatenate([network.scores(*part).cpu().numpy() for part in parts])

    def build(self, tensors: Mapping[str, Tensor]) -> PdppNetwork:
        """A network for weights of its sizes."""
        horizon, action_count = tensors["noise"].shape
        (observation_dim,) = tensors["mean"].shape
        task_count = tensors["unet.end.1.bias"].shape[0] - action_count - observation_dim
        if task_count < 1:
            raise ValueError(f"{task_count} tasks")
        return PdppNetwork(
            config=self.config,
            observation_dim=observation_dim,
            task_count=task_count,
            action_count=action_count,
            horizon=horizon,
        )


class PdppPlanner:
    """Plans by projected diffusion.

    The best plan takes the highest score of each step in one sample; the further ones have the next
    highest sums of scores.
    The energy of a plan is minus its sum. The initial noise is the same for every query and is
    saved with the network: the plan of a query does not depend on which others are planned with it.

    Args:
        config: Settings; those of PDPP and of the task classifier are read.
        context: Where it is trained.
    """

    name = "PDPP"

    def __init__(self, *, config: RunConfig, context: TrainingContext = TrainingContext()) -> None:
        self.config = config.pdpp
        self.task_model = TaskModel(
            config=config.classifier,
            training=config.classifier_training,
            context=context.part("classifier"),
        )
        self.model = PdppModel(config=config.pdpp, context=context.part("pdpp"))

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        return parameters_of(self.task_model, self.model)

    @property
    def results(self) -> dict[str, TrainingResult]:
        """How the trainings of both went."""
        return results_of(self.task_model, self.model)

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Train the task classifier, then the diffusion network.

        Which is validated with predicted tasks.

        Args:
            train: Training windows.
            val: Validation windows.
            seed: Seed of everything drawn.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint in the folder belongs to another training, or a training
                diverged.
        """
        check_horizon(self.config, train.horizon)
        self.task_model.fit(train, val, seed=seed)
        self.model.fit(
            train, val, tasks=self.task_model.predict(Queries.from_windows(val)), seed=seed
        )

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task model's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The best plans of each query's task.

        Raises:
            ConfigError: `top_k` is below 1.
            RunError: Not fitted, observations of another dimension, or an unknown task.
        """
        if top_k < 1:
            raise ConfigError(f"top_k {top_k}: expected at least one plan.")
        if not len(queries):
            return []
        scores = self.model.scores(queries, self.predict_tasks(queries))
        effort = Effort(token_forwards=scores.shape[1] * self.config.sampling, leaves=0)
        return [_best(own.astype(np.float64), top_k, effort) for own in scores]

    def save(self, folder: Path) -> None:
        """Write both networks."""
        self.task_model.save(folder)
        self.model.save(folder)

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged files, or weights of another configuration.
        """
        self.task_model.load(folder)
        self.model.load(folder)


def _best(scores: NDArray[np.float64], top_k: int, effort: Effort) -> Plans:
    """The sequences of the highest sums of scores [T, K], ties by action ids.

    Only the `top_k` best actions of a step can occur: for any other, each of these in its place
    would give a better sequence.
    """
    kept = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :top_k], axis=1)
    chain = Chain(costs=tuple(-np.take_along_axis(scores, kept, axis=1)))
    found = chain.cheapest(top_k)
    actions = kept[np.arange(len(kept)), found.sequences]
    return Plans(
        actions=actions, energies=found.costs, scores=found.costs, evaluated=effort, exact=False
    )
