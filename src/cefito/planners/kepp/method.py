"""Declaration of KEPP: walks of a graph between predicted ends, seen by a diffusion of plans."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cefito.planners.base import Abilities
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.methods import GRAPH, Method, Paper, rows
from cefito.settings import Settings

Knowledge = Literal["graph", "ends"]
"""Input of the plan network beside the observations."""


class PlanConfig(DiffusionConfig):
    """The plan network."""

    ends: float = Field(5.0, gt=0)


class KeppConfig(Settings):
    """KEPP: a plan network denoises plans, given walks of a graph between predicted ends."""

    # Walks of the "graph"; or the "ends" alone, each filling half of the plan, as if a walk is
    # missing.
    knowledge: Knowledge = "graph"
    walks: int = Field(2, ge=1, le=100)  # R, the number of likeliest walks
    # Training walks by a step network and a graph of other videos, or of all (published; far more
    # accurate on training windows than on others).
    paths: Literal["out-of-fold", "in-sample"] = "out-of-fold"
    folds: int = Field(5, ge=2, le=100)  # parts of the training videos, at most one per video
    step: DiffusionConfig = DiffusionConfig()
    plan: PlanConfig = PlanConfig()


class KeppSettings(Settings):
    """The sections that KEPP reads."""

    kepp: KeppConfig = KeppConfig()


ABILITIES = Abilities(true_task=False)


KEPP = Method(
    name="kepp",
    planner="cefito.planners.kepp.planner:KeppPlanner",
    settings=KeppSettings,
    title="KEPP",
    line="diffusion with walks of the graph between two actions that it predicts first",
    paper=Paper(
        "Why Not Use Your Textbook? Knowledge-Enhanced Procedure Planning of Instructional Videos",
        "CVPR 2024",
        "2403.02782",
    ),
    needs=(GRAPH,),
    abilities=ABILITIES,
    parameters={"KEPP step network": 41_843_589, "KEPP plan network": 42_184_335},
    variants=rows(
        "kepp",
        "KEPP",
        {
            "in-sample": ("in-sample paths", {"kepp.paths": "in-sample"}),
            "ends": ("ends alone", {"kepp.knowledge": "ends"}),
        },
        own_name=True,
    ),
)
