"""MTID: masked temporal interpolation diffusion for procedure planning (Zhou et al., ICLR 2025).

Learned anew from its published facts. Plans are denoised as in PDPP; a latent for each residual
block of the U-Net stands between the initial observation and the goal, and errors weigh less from
the ends of a plan towards its middle. The true task is given in training, the predicted one when
planning.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import Shape
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.planner import TaskDiffusionModel, TaskDiffusionPlanner
from cefito.planners.mtid.network import (
    MtidNetwork,
    check_mtid_horizon,
    gradient_weights,
    task_actions,
)
from cefito.planners.mtid.settings import MtidConfig, MtidSettings
from cefito.planners.mtid.tasks import MtidTaskModel
from cefito.planners.shared.task_model import TaskPredictor
from cefito.runtime import Stream
from cefito.training.trainer import TrainingResult

__all__ = ["MtidModel", "MtidPlanner"]


@dataclass(frozen=True)
class MtidModel(TaskDiffusionModel[MtidNetwork]):
    """A trained diffusion network of MTID."""

    title: ClassVar[str] = "MTID network"
    file: ClassVar[str] = "mtid.safetensors"
    part: ClassVar[str] = "mtid"
    stream: ClassVar[Stream] = Stream.MTID
    network_class: ClassVar[type[MtidNetwork]] = MtidNetwork

    @classmethod
    def weights(cls, config: MtidConfig, horizon: int) -> Tensor:
        """They fall from the ends towards the middle, [T]."""
        return gradient_weights(horizon, config.ends)

    @classmethod
    def tell(cls, network: MtidNetwork, train: Windows) -> None:
        """The actions of each task, where plans keep to them."""
        if network.config.mask:
            network.task_actions.copy_(
                task_actions(
                    train.tasks,
                    train.actions,
                    task_count=len(train.taxonomy.tasks),
                    action_count=len(train.taxonomy.actions),
                )
            )


@dataclass(frozen=True, eq=False, repr=False)
class MtidPlanner(TaskDiffusionPlanner):
    """Plans by diffusion with interpolated latents, as `TaskDiffusionPlanner` says.

    Where plans keep to the actions of their task, there may be fewer than are asked for.
    """

    model_class: ClassVar[type[TaskDiffusionModel[Any]]] = MtidModel
    name = "MTID"

    @classmethod
    def check_horizon(cls, config: MtidConfig, horizon: int) -> None:
        """See that time does not shrink to nothing.

        Raises:
            ConfigError: More levels than the horizon has steps.
        """
        check_mtid_horizon(config, horizon)

    @classmethod
    def fit_tasks(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: MtidSettings,
        seed: int,
        context: TrainingContext,
    ) -> tuple[TaskPredictor[Any], TrainingResult]:
        """Train its own task classifier, or the one that other methods use."""
        if settings.mtid.tasks == "shared":
            return super().fit_tasks(train, val, settings=settings, seed=seed, context=context)
        config = settings.mtid_classifier
        return MtidTaskModel.fit(train, val, config=config, seed=seed, context=context)

    @classmethod
    def load_tasks(
        cls, folder: Path, *, settings: MtidSettings, device: torch.device | str
    ) -> TaskPredictor[Any]:
        """What predicts tasks, as it was saved in a folder."""
        if settings.mtid.tasks == "shared":
            return super().load_tasks(folder, settings=settings, device=device)
        return MtidTaskModel.load(folder, config=settings.mtid_classifier, device=device)

    @classmethod
    def task_sizes(cls, settings: MtidSettings, shape: Shape) -> dict[str, int]:
        """Learned numbers of what predicts tasks."""
        if settings.mtid.tasks == "shared":
            return super().task_sizes(settings, shape)
        return {MtidTaskModel.title: MtidTaskModel.size(settings.mtid_classifier, shape)}
