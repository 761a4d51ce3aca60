"""Declaration of MTID: PDPP's diffusion, with vectors interpolated between observations inside."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from cefito.planners.base import Abilities
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.methods import CLASSIFIER, Method, Paper, rows
from cefito.planners.shared.settings import ClassifierSettings
from cefito.settings import Size
from cefito.training.settings import EmaConfig, OptimiserConfig, StoppingConfig, TrainingConfig


class MtidConfig(DiffusionConfig):
    """MTID: PDPP's matrices and U-Net, and a latent vector for each of its residual blocks.

    The weight of the squared error falls linearly from `ends`, at the first and the last action, to
    1 in the middle.
    """

    steps: Size = 250
    ends: float = Field(6.0, gt=0)
    encodings: int = Field(2, ge=2, le=16)  # maps before the interpolation
    layers: int = Field(5, ge=0, le=1000)  # of the transformer over the latents
    heads: PositiveInt = 8  # fewer if the features of an observation are not a multiple
    feedforward: Size = 2048
    latent_dropout: float = Field(0.1, ge=0, lt=1)
    # Whether a plan keeps to the actions of its task in the training windows, if it has any
    # (described in the paper, off in the released code).
    mask: bool = False
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


class MtidSettings(ClassifierSettings):
    """The sections that MTID reads."""

    mtid: MtidConfig = MtidConfig()


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
    parameters={"task classifier": 7_094_290, "MTID network": 218_998_191},
    variants=rows("mtid", "MTID", {"masked": ("masked", {"mtid.mask": True})}),
)
