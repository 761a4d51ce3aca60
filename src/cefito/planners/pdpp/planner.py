"""PDPP: projected diffusion for procedure planning (Wang et al., CVPR 2023).

Learned anew from its published facts. A network learns to restore the actions of noised plans,
given the task and the two observations; a plan is denoised from noise in a few deterministic steps.
The true task is given in training, the predicted one when planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import Fitted, Queries, Shape
from cefito.planners.diffusion.loss import end_weights
from cefito.planners.diffusion.model import DiffusionModel, saved_sizes
from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.networks import TrainingContext, learned
from cefito.planners.pdpp.network import PdppNetwork, check_pdpp_horizon
from cefito.planners.pdpp.settings import PdppConfig, PdppSettings
from cefito.planners.task_model import TaskModel
from cefito.runtime import Stream
from cefito.training.trainer import TrainingResult

__all__ = ["PdppModel", "PdppPlanner"]


@dataclass(frozen=True)
class PdppModel(DiffusionModel[PdppNetwork]):
    """A trained diffusion network."""

    title: ClassVar[str] = "PDPP network"
    file: ClassVar[str] = "pdpp.safetensors"
    stream: ClassVar[Stream] = Stream.PDPP

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
        result = cls.train(
            network,
            train,
            val,
            known=(train.tasks,),
            val_known=(tasks,),
            weights=end_weights(train.horizon, config.ends),
            seed=seed,
            settings=[train.horizon, config.model_dump(), tasks.tolist()],
            context=context.part("pdpp"),
        )
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: PdppConfig, device: torch.device | str = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))


@dataclass(frozen=True, eq=False, repr=False)
class PdppPlanner(TaskDiffusionPlanner):
    """Plans by projected diffusion, as `TaskDiffusionPlanner` says."""

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
        check_pdpp_horizon(settings.pdpp, train.horizon)
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


def _build(config: PdppConfig, tensors: Mapping[str, Tensor]) -> PdppNetwork:
    """A network for weights of its sizes."""
    sizes = saved_sizes(tensors)
    return PdppNetwork(
        config=config,
        observation_dim=sizes.observation_dim,
        task_count=sizes.before,
        action_count=sizes.action_count,
        horizon=sizes.horizon,
    )
