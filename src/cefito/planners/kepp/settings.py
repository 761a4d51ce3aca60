"""Settings of KEPP; the defaults are the published ones, repeated in `paper.toml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.settings import Settings

__all__ = ["KeppConfig", "KeppSettings", "Knowledge", "PlanConfig"]

Knowledge = Literal["graph", "ends", "none"]
"""What the plan network is told beside the observations.

That is walks of the graph, the predicted first and last action alone, or nothing.
"""


class PlanConfig(DiffusionConfig):
    """The plan network.

    Attributes:
        ends: Weight of the squared error of the first and the last action.
    """

    ends: float = Field(5.0, gt=0)


class KeppConfig(Settings):
    """KEPP: a plan network denoises plans that have walks of a graph between predicted ends beside.

    Attributes:
        knowledge: What the plan network is told: walks of the "graph"; the "ends" alone, the first
            half of the plan being the first action and the second half the last one, which is what
            is told where no walk is found; or "none", without a step network.
        walks: R, the likeliest walks that are told.
        agreement: The value where several walks have the same action at the same step: that of the
            "last" of them, so that with two walks 1/3 says that both agree (published), or the
            "sum".
        paths: What the walks of training windows come from: "out-of-fold", a step network and a
            graph of other training videos, or "in-sample", those of all of them (published), which
            tell far more of training windows than of any others.
        folds: Parts of the training videos, at most one a video, each told of by a step network
            that has seen the others. Out of fold only.
        step: The step network. Its loss has no part between the ends, so that `ends` only scales
            it.
        plan: The plan network.
    """

    knowledge: Knowledge = "graph"
    walks: int = Field(2, ge=1, le=100)
    agreement: Literal["last", "sum"] = "last"
    paths: Literal["out-of-fold", "in-sample"] = "out-of-fold"
    folds: int = Field(5, ge=2, le=100)
    step: DiffusionConfig = DiffusionConfig()
    plan: PlanConfig = PlanConfig()


class KeppSettings(Settings):
    """The sections that KEPP reads."""

    kepp: KeppConfig = KeppConfig()
