"""PDPP: projected diffusion for procedure planning (Wang et al., CVPR 2023).

Learned anew from its published facts. A network learns to restore the actions of noised plans,
given the task and the two observations; a plan is denoised from noise in a few deterministic steps.
The true task is given in training, the predicted one when planning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cefito.planners.diffusion.loss import end_weights
from cefito.planners.diffusion.planner import TaskDiffusionModel, TaskDiffusionPlanner
from cefito.planners.pdpp.network import PdppNetwork, check_pdpp_horizon
from cefito.planners.pdpp.settings import PdppConfig
from cefito.runtime import Stream

__all__ = ["PdppModel", "PdppPlanner"]


@dataclass(frozen=True)
class PdppModel(TaskDiffusionModel[PdppNetwork]):
    """A trained diffusion network."""

    title: ClassVar[str] = "PDPP network"
    file: ClassVar[str] = "pdpp.safetensors"
    part: ClassVar[str] = "pdpp"
    stream: ClassVar[Stream] = Stream.PDPP
    network_class: ClassVar[type[PdppNetwork]] = PdppNetwork

    @classmethod
    def weights(cls, config: PdppConfig, horizon: int) -> Tensor:
        """The ends count for more, [T]."""
        return end_weights(horizon, config.ends)


@dataclass(frozen=True, eq=False, repr=False)
class PdppPlanner(TaskDiffusionPlanner):
    """Plans by projected diffusion, as `TaskDiffusionPlanner` says."""

    model_class: ClassVar[type[TaskDiffusionModel[Any]]] = PdppModel
    name = "PDPP"

    @classmethod
    def check_horizon(cls, config: PdppConfig, horizon: int) -> None:
        """See that time does not shrink to nothing.

        Raises:
            ConfigError: More levels than the horizon has steps.
        """
        check_pdpp_horizon(config, horizon)
