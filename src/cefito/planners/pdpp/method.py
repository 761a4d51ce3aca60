"""Declaration of PDPP: projected diffusion of the matrix of task, actions and observations."""

from __future__ import annotations

from cefito.planners.base import Abilities
from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.methods import CLASSIFIER, Method, Paper, rows
from cefito.planners.shared.settings import ClassifierSettings


class PdppConfig(DiffusionConfig):
    """PDPP: a matrix of task, actions and observations over time, denoised by a temporal U-Net."""


class PdppSettings(ClassifierSettings):
    """The sections that PDPP reads."""

    pdpp: PdppConfig = PdppConfig()


PDPP = Method(
    name="pdpp",
    planner="cefito.planners.pdpp.planner:PdppPlanner",
    settings=PdppSettings,
    title="PDPP",
    line="diffusion over the matrix of task, actions and observations",
    paper=Paper(
        "PDPP: Projected Diffusion for Procedure Planning in Instructional Videos",
        "CVPR 2023",
        "2303.14676",
    ),
    needs=(CLASSIFIER,),
    abilities=Abilities(),
    parameters={"task classifier": 7_094_290, "PDPP network": 42_063_255},
    variants=rows("pdpp", "PDPP"),
)
