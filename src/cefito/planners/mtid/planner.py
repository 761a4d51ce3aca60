"""MTID: masked temporal interpolation diffusion (Zhou et al., ICLR 2025).

Reimplemented from its published description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.mtid.network import MtidNetwork
from cefito.planners.mtid.settings import MtidSettings
from cefito.planners.mtid.tasks import MtidTaskModel
from cefito.planners.shared.task_model import TaskModel, TaskPredictor

__all__ = ["MtidPlanner"]


@dataclass(frozen=True, eq=False, repr=False)
class MtidPlanner(TaskDiffusionPlanner[MtidNetwork]):
    """Plans by diffusion with interpolated latents, as `TaskDiffusionPlanner` does.

    If plans keep to the actions of their task, there may be fewer than `top_k`.
    """

    name = "MTID"
    title = "MTID network"
    part = "mtid"
    stream = 22
    build = MtidNetwork

    @override
    @classmethod
    def predictor(cls, settings: MtidSettings) -> type[TaskPredictor[Any]]:
        return TaskModel if settings.mtid.tasks == "shared" else MtidTaskModel
