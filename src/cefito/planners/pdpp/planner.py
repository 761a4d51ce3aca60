"""PDPP: projected diffusion for procedure planning (Wang et al., CVPR 2023).

Learned anew from its published facts. A network learns to restore the actions of noised plans,
given the task and the two observations; a plan is denoised from noise in a few deterministic steps.
The true task is given in training, the predicted one when planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.planners.base import (
    UNCONSTRAINED,
    BasePlanner,
    Fitted,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.networks import (
    TrainedNetwork,
    TrainingContext,
    finite_outputs,
    learned,
    train_network,
)
from cefito.planners.pdpp.loss import PdppLoss
from cefito.planners.pdpp.network import BLOCK, PdppNetwork, check_horizon
from cefito.planners.pdpp.settings import PdppConfig, PdppSettings
from cefito.planners.task_model import TaskModel
from cefito.progress import Progress, silent
from cefito.runtime import Stream
from cefito.search.chain import Chain
from cefito.search.constraints import Constraints
from cefito.search.problem import Effort, Plans
from cefito.training.trainer import TrainingResult

__all__ = ["PdppModel", "PdppPlanner"]


@dataclass(frozen=True)
class PdppModel(TrainedNetwork[PdppNetwork]):
    """A trained diffusion network."""

    title: ClassVar[str] = "PDPP network"
    file: ClassVar[str] = "pdpp.safetensors"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: PdppConfig,
        tasks: NDArray[np.int64],
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train the network on windows, keep the epoch of the best validation success rate.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network and how it is trained.
            tasks: The tasks that validation windows are planned for [N].
            seed: Seed of weights, batches, times and noise.
            context: Where it is trained.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        network = PdppNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            horizon=train.horizon,
            task_count=len(train.taxonomy.tasks),
            action_count=len(train.taxonomy.actions),
        )
        result = train_network(
            network,
            lambda network: PdppLoss(
                network=network, train=train, val=val, tasks=tasks, config=config
            ),
            name=cls.title,
            training=config.training,
            stream=Stream.PDPP,
            seed=seed,
            settings=[train.horizon, config.model_dump(), tasks.tolist()],
            context=context.part("pdpp"),
            centre=config.centre,
        )
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: PdppConfig, device: torch.device | str = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))

    @torch.inference_mode()
    def scores(self, queries: Queries, tasks: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each action at each step of each query, [N, T, K].

        Args:
            queries: At least one.
            tasks: The task that each is planned for [N].

        Raises:
            RunError: Observations of another dimension, or a task that the network does not know.
        """
        network = self.network
        initial, goal = self.observations(queries, network.observation_dim)
        unknown = tasks[(tasks < 0) | (tasks >= network.task_count)]
        if len(unknown):
            raise RunError(
                f"task {unknown[0]}: unknown. This run knows the tasks 0 to "
                f"{network.task_count - 1}."
            )
        given = (torch.from_numpy(tasks).to(self.device), initial, goal)
        parts = zip(*(part.split(BLOCK) for part in given), strict=True)
        scores = torch.cat([network.scores(*part) for part in parts])
        return np.asarray(finite_outputs(scores, self.title).cpu().numpy())


@dataclass(frozen=True, eq=False, repr=False)
class PdppPlanner(BasePlanner):
    """Plans by projected diffusion.

    The best plan takes the highest score of each step in one sample; the further ones have the next
    highest sums of scores. The energy of a plan is minus its sum. The initial noise is the same for
    every query and is saved with the network: the plan of a query does not depend on which others
    are planned with it.

    Attributes:
        task_model: Predicts tasks.
        model: The diffusion network.
    """

    task_model: TaskModel
    model: PdppModel
    name = "PDPP"

    @classmethod
    def sizes(cls, settings: PdppSettings, shape: Shape) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        network = PdppNetwork(
            config=settings.pdpp,
            observation_dim=shape.observation_dim,
            task_count=shape.tasks,
            action_count=shape.actions,
            horizon=shape.horizon,
        )
        return {
            TaskModel.title: TaskModel.size(settings.classifier, shape),
            PdppModel.title: learned(network),
        }

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: PdppSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the task classifier, then the diffusion network, validated with predicted tasks.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint in the folder belongs to another training, or a training
                diverged.
        """
        check_horizon(settings.pdpp, train.horizon)
        task_model, task_result = TaskModel.fit(
            train, val, settings=settings, seed=seed, context=context
        )
        tasks = task_model.predict(Queries.from_windows(val))
        model, result = PdppModel.fit(
            train, val, config=settings.pdpp, tasks=tasks, seed=seed, context=context
        )
        return Fitted(
            cls(task_model, model), {TaskModel.title: task_result, PdppModel.title: result}
        )

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: PdppSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or weights of another configuration.
        """
        folder = Path(folder)
        return cls(
            TaskModel.load(folder, config=settings.classifier, device=context.device),
            PdppModel.load(folder, config=settings.pdpp, device=context.device),
        )

    def save(self, folder: Path | str) -> None:
        """Write both networks."""
        folder = Path(folder)
        self.task_model.save(folder)
        self.model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        return {
            TaskModel.title: self.task_model.parameters,
            PdppModel.title: self.model.parameters,
        }

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return self.model.network.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.model.network.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        network = self.model.network
        return Vocabulary(network.task_count, network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task model's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query's task.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension, or an unknown task.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        scores = self.model.scores(queries, self.predict_tasks(queries)).astype(np.float64)
        forwards = self.horizon * self.model.network.config.sampling
        effort = Effort(token_forwards=forwards, leaves=0)
        return [_best(query_scores, top_k, effort) for query_scores in scores]


def _best(scores: NDArray[np.float64], top_k: int, effort: Effort) -> Plans:
    """The sequences of the highest sums of scores [T, K], ties by action ids.

    Only the `top_k` best actions of a step can occur: for any other, each of these in its place
    would give a better sequence.
    """
    kept = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :top_k], axis=1)
    chain = Chain(costs=tuple(-np.take_along_axis(scores, kept, axis=1)))
    best = chain.cheapest(top_k)
    actions = kept[np.arange(len(kept)), best.sequences]
    return Plans(
        actions=actions, energies=best.costs, scores=best.costs, evaluated=effort, exact=False
    )


def _build(config: PdppConfig, tensors: Mapping[str, Tensor]) -> PdppNetwork:
    """A network for weights of its sizes."""
    horizon, action_count = tensors["noise"].shape
    (observation_dim,) = tensors["mean"].shape
    task_count = tensors["unet.end.1.bias"].shape[0] - action_count - observation_dim
    if task_count < 1:
        raise ValueError(f"{task_count} tasks")
    return PdppNetwork(
        config=config,
        observation_dim=observation_dim,
        task_count=task_count,
        action_count=action_count,
        horizon=horizon,
    )
