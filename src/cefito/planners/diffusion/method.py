"""Declaration of PDPP: projected diffusion of the matrix of task, actions and observations.

Its settings are those of all networks of diffusion.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, Method, Paper, rows
from cefito.planners.shared.settings import ClassifierSettings
from cefito.settings import Settings, Size
from cefito.training.settings import EmaConfig, OptimiserConfig, StoppingConfig, TrainingConfig


class DiffusionConfig(Settings):
    """Matrices over time, denoised by a temporal U-Net; the defaults are PDPP's."""

    widths: tuple[Size, ...] = Field((256, 512, 1024), min_length=1)  # multiples of 8
    steps: Size = 200  # in training
    sampling: PositiveInt = 10  # steps of the deterministic sampler (DDIM), at most `steps`
    ends: float = Field(10.0, gt=0)  # weight of the squared error of the first and the last action
    normalise: bool = False  # layer-normalise the observations first (published: no)
    centre: bool = False  # subtract the mean training observation first (published: no)
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=558,  # published: 120 × 200 steps
            batch_size=256,
            learning_rate=5e-4,
            weight_decay=0.0,
            schedule="step",
            warmup=0.16667,  # 20 of 120 epochs
            factor=0.5,
            interval=0.25,  # 30 of 120 epochs
        ),
        ema=EmaConfig(decay=0.995, every=10, warmup=400),
        # published: the best of every fifth epoch of 200 steps, chosen on the test windows
        stopping=StoppingConfig(every=23, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if any(width % 8 for width in self.widths):
            raise ValueError(f"widths {list(self.widths)} must be multiples of 8")
        if self.sampling > self.steps:
            raise ValueError(
                f"sampling takes {self.sampling} steps, more than the {self.steps} of the training"
            )
        return self


class PdppSettings(ClassifierSettings):
    """The sections that PDPP reads."""

    pdpp: DiffusionConfig = DiffusionConfig()


PDPP = Method(
    name="pdpp",
    planner="cefito.planners.diffusion.planner:PdppPlanner",
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
