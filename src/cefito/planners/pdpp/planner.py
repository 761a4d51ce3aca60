"""PDPP: projected diffusion for procedure planning (Wang et al., CVPR 2023).

Reimplemented from its published description. A network learns to restore the actions of noised
plans, given the task and the two observations; a plan is denoised from noise in a few deterministic
steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from cefito.planners.base import Shape
from cefito.planners.diffusion.matrix import task_layout
from cefito.planners.diffusion.network import DiffusionNetwork
from cefito.planners.diffusion.planner import TaskDiffusionPlanner
from cefito.planners.pdpp.method import PdppConfig


class PdppNetwork(DiffusionNetwork):
    """Denoises matrices of task, action and observation; the task is given."""

    def __init__(self, config: PdppConfig, shape: Shape) -> None:
        super().__init__(config=config, layout=task_layout(shape))


@dataclass(frozen=True, eq=False, repr=False)
class PdppPlanner(TaskDiffusionPlanner[PdppNetwork]):
    """Plans by projected diffusion, as `TaskDiffusionPlanner` does."""

    name = "PDPP"
    title = "PDPP network"
    part = "pdpp"
    stream = 8
    build = PdppNetwork
