"""Declaration of MTID: PDPP's diffusion, with vectors interpolated between observations inside."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.methods import CLASSIFIER, Method, Paper, rows
from cefito.planners.shared.settings import ClassifierSettings
from cefito.settings import Settings, check_weights
from cefito.training.settings import (
    ClassifierTrainingConfig,
    EmaConfig,
    OptimiserConfig,
    StoppingConfig,
    TrainingConfig,
)


class MtidConfig(DiffusionConfig):
    """MTID: PDPP's matrices and U-Net, and a latent vector for each of its residual blocks.

    The weight of the squared error falls linearly from `ends`, at the first and the last action, to
    1 in the middle.
    """

    steps: PositiveInt = 250
    ends: float = Field(6.0, gt=0)
    encodings: int = Field(2, ge=2, le=16)  # maps before the interpolation
    layers: int = Field(5, ge=0, le=100)  # of the transformer over the latents
    heads: PositiveInt = 8  # fewer if the features of an observation are not a multiple
    feedforward: int = Field(2048, ge=1, le=1 << 20)
    latent_dropout: float = Field(0.1, ge=0, lt=1)
    # Whether a plan keeps to the actions of its task in the training windows, if it has any
    # (described in the paper, off in the released code).
    mask: bool = False
    tasks: Literal["own", "shared"] = "own"  # own classifier, or the other methods'
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=581,  # published: 100 × 250 steps
            batch_size=256,
            learning_rate=5e-4,
            weight_decay=0.0,
            schedule="step",
            warmup=0.16667,
            factor=0.5,
            interval=0.25,
        ),
        ema=EmaConfig(decay=0.995, every=10, warmup=400),
        # published: chosen on the test windows, how often is not mentioned; here as often as PDPP
        stopping=StoppingConfig(every=29, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _latents_fit(self) -> MtidConfig:
        check_weights(
            sum(12 * width**2 for width in self.widths), "attention in blocks of these widths"
        )
        return self


class MtidClassifierConfig(Settings):
    """MTID's own task classifier, a transformer over the two observations."""

    width: PositiveInt = 1024
    layers: PositiveInt = 2
    heads: PositiveInt = 4
    feedforward: PositiveInt = 4096
    hidden: PositiveInt = 512  # width of the last hidden layer
    dropout: float = Field(0.4, ge=0, lt=1)
    normalise: bool = False  # layer-normalise the observations first (published: no)
    centre: bool = False  # subtract the mean training observation first (published: no)
    training: ClassifierTrainingConfig = ClassifierTrainingConfig()

    @model_validator(mode="after")
    def _usable(self) -> MtidClassifierConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided among {self.heads} heads")
        check_weights(
            self.layers * self.width * (4 * self.width + 2 * self.feedforward)
            + self.width * self.hidden,
            "a task classifier of these sizes",
        )
        return self


class MtidSettings(ClassifierSettings):
    """The sections that MTID reads; its own classifier or the shared one, as `mtid.tasks` says."""

    mtid: MtidConfig = MtidConfig()
    mtid_classifier: MtidClassifierConfig = MtidClassifierConfig()


MTID = Method(
    name="mtid",
    planner="cefito.planners.mtid.planner:MtidPlanner",
    settings=MtidSettings,
    title="MTID",
    line="PDPP's diffusion with latents interpolated between the two observations",
    paper=Paper(
        "Masked Temporal Interpolation Diffusion for Procedure Planning in Instructional Videos",
        "ICLR 2025",
    ),
    needs=(CLASSIFIER,),
    abilities=Abilities(),
    parameters={"MTID task classifier": 28_352_018, "MTID network": 218_998_191},
    variants=rows(
        "mtid",
        "MTID",
        {
            "masked": ("masked", {"mtid.mask": True}),
        },
    ),
)
