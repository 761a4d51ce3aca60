"""Settings of KEPP; the defaults are the published ones, repeated in `paper.toml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.settings import Settings

__all__ = ["KeppConfig", "KeppSettings", "Knowledge", "PlanConfig"]

Knowledge = Literal["graph", "ends", "none"]
"""Input of the plan network beside the observations."""


class PlanConfig(DiffusionConfig):
    """The plan network.

    Attributes:
        ends: Weight of the squared error of the first and the last action.
    """

    ends: float = Field(5.0, gt=0)


class KeppConfig(Settings):
    """KEPP: a plan network denoises plans, given walks of a graph between predicted ends.

    Attributes:
        knowledge: Input of the plan network beside the observations: walks of the "graph"; the
            "ends" alone, the first half of the plan being the first action and the second half the
            last one, which also replaces a missing walk; or "none", without a step network.
        walks: R, the number of likeliest walks.
        agreement: The value if several walks have the same action at the same step: the "last"
            walk's, so that with two walks 1/3 means that both agree (published), or the "sum".
        paths: Source of the walks of training windows: "out-of-fold", a step network and a graph of
            other training videos, or "in-sample", of all training videos (published), which is far
            more accurate on training windows than on any others.
        folds: Parts of the training videos, at most one per video; the walks of each come from a
            step network that has seen the others. Out of fold only.
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
