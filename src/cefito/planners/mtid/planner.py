"""MTID: masked temporal interpolation diffusion for procedure planning (Zhou et al., ICLR 2025).

Learned anew from its published facts. Plans are denoised as in PDPP; a latent for each residual
block of the U-Net stands between the initial observation and the goal, and errors weigh less from
the ends of a plan towards its middle. The true task is given in training, the predicted one when
planning.
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
from cefito.planners.base import Fitted, Queries
from cefito.planners.diffusion.model import DiffusionModel, saved_sizes
from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.mtid.network import (
    MtidNetwork,
    check_mtid_horizon,
    gradient_weights,
    task_actions,
)
from cefito.planners.mtid.settings import MtidConfig, MtidSettings
from cefito.planners.mtid.tasks import MtidTaskModel
from cefito.planners.networks import TrainingContext
from cefito.planners.task_model import TaskModel
from cefito.runtime import Stream
from cefito.training.trainer import TrainingResult

__all__ = ["MtidModel", "MtidPlanner"]


@dataclass(frozen=True)
class MtidModel(DiffusionModel[MtidNetwork]):
    """A trained diffusion network of MTID."""

    title: ClassVar[str] = "MTID network"
    file: ClassVar[str] = "mtid.safetensors"
    stream: ClassVar[Stream] = Stream.MTID

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: MtidConfig,
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
        sizes = {
            "task_count": len(train.taxonomy.tasks),
            "action_count": len(train.taxonomy.actions),
        }
        network = MtidNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            horizon=train.horizon,
            **sizes,
        )
        if config.mask:
            network.task_actions.copy_(task_actions(train.tasks, train.actions, **sizes))
        result = cls.train(
            network,
            train,
            val,
            known=(train.tasks,),
            val_known=(tasks,),
            weights=gradient_weights(train.horizon, config.ends),
            seed=seed,
            settings=[train.horizon, config.model_dump(), tasks.tolist()],
            context=context.part("mtid"),
        )
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: MtidConfig, device: torch.device | str = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))


@dataclass(frozen=True, eq=False, repr=False)
class MtidPlanner(TaskDiffusionPlanner):
    """Plans by diffusion with interpolated latents, as `TaskDiffusionPlanner` says.

    Where plans keep to the actions of their task, there may be fewer than are asked for.
    """

    task_model: MtidTaskModel | TaskModel
    model: MtidModel
    name = "MTID"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: MtidSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the task classifier, then the diffusion network, validated with predicted tasks.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint in the folder belongs to another training, or a training
                diverged.
        """
        check_mtid_horizon(settings.mtid, train.horizon)
        task_model: MtidTaskModel | TaskModel
        if settings.mtid.tasks == "own":
            task_model, task_result = MtidTaskModel.fit(
                train, val, config=settings.mtid_classifier, seed=seed, context=context
            )
        else:
            task_model, task_result = TaskModel.fit(
                train, val, settings=settings, seed=seed, context=context
            )
        tasks = task_model.predict(Queries.from_windows(val))
        model, result = MtidModel.fit(
            train, val, config=settings.mtid, tasks=tasks, seed=seed, context=context
        )
        return Fitted(
            cls(task_model, model), {task_model.title: task_result, MtidModel.title: result}
        )

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: MtidSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or weights of another configuration.
        """
        folder = Path(folder)
        device = context.device
        task_model: MtidTaskModel | TaskModel
        if settings.mtid.tasks == "own":
            task_model = MtidTaskModel.load(folder, config=settings.mtid_classifier, device=device)
        else:
            task_model = TaskModel.load(folder, config=settings.classifier, device=device)
        return cls(task_model, MtidModel.load(folder, config=settings.mtid, device=device))


def _build(config: MtidConfig, tensors: Mapping[str, Tensor]) -> MtidNetwork:
    """A network for weights of its sizes."""
    sizes = saved_sizes(tensors)
    return MtidNetwork(
        config=config,
        observation_dim=sizes.observation_dim,
        task_count=sizes.before,
        action_count=sizes.action_count,
        horizon=sizes.horizon,
    )
