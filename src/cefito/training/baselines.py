"""Settings of the baselines; the defaults are the published sizes, as `paper.toml` repeats them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from cefito.field.config import Frozen, ProposalConfig
from cefito.training.parts import (
    AugmentationConfig,
    EmaConfig,
    OptimiserConfig,
    StoppingConfig,
    TrainingConfig,
)

__all__ = ["PdppConfig", "PkgConfig", "ViterbiConfig"]


class PkgConfig(Frozen):
    """Procedural knowledge graph: a step model for the first and the last action.

    The likeliest path between them.

    Attributes:
        network: The step model.
        training: How the step model is trained.
        smoothing: Added to the count of every transition.
        width: Of the beam search "pkg-beam": paths kept.
    """

    network: ProposalConfig = ProposalConfig(hidden=(512, 512), dropout=0.2)
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=24, batch_size=64, learning_rate=3e-3, weight_decay=1.0, schedule="cosine"
        ),
        ema=EmaConfig(decay=0.99, every=1, warmup=100),
        stopping=StoppingConfig(every=2, patience=0, windows=0),
        augmentation=AugmentationConfig(noise=0.3),
    )
    smoothing: float = Field(0.0, ge=0)
    width: int = Field(10, ge=1)


class ViterbiConfig(Frozen):
    """ViterbiPlanNet (arXiv 2603.04265).

    Emissions decoded by a differentiable Viterbi layer over the knowledge graph.

    Attributes:
        hidden: Width of the observation encoder's first layer.
        width: Width of tokens.
        heads: Attention heads of the emission network.
        feedforward: Width of its feed-forward layer.
        input_dropout: Share of the features of observations and descriptions zeroed in training.
        dropout: Share of the emission network's hidden units zeroed in training.
        normalise: Layer-normalise the observations first (published: raw).
        centre: Subtract the training windows' mean observation first (published: no).
        descriptions: A .npy file with embeddings of descriptions of the state before and after each
            action, [K, 6, W] (three before, then three after), to align the observations with in
            training; empty for none.
        alignment: Weight of the alignment loss, where there are descriptions.
        task: Weight of the task loss; 0 for no task head.
        decoding: "viterbi" over the marginals with the raw transitions (published as DVL+VD), or
            the likeliest action of each step after the layer was applied to its own "marginals"
            again (published as DVL).
        training: How it is trained.
    """

    hidden: PositiveInt = 3072
    width: PositiveInt = 128
    heads: PositiveInt = 1
    feedforward: PositiveInt = 256
    input_dropout: float = Field(0.4, ge=0, lt=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    normalise: bool = False
    centre: bool = False
    descriptions: str = ""
    alignment: float = Field(1.0, ge=0)
    task: float = Field(1.0, ge=0)
    decoding: Literal["viterbi", "marginals"] = "viterbi"
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=500,
            batch_size=256,
            learning_rate=9e-4,
            weight_decay=0.01,
            schedule="step",
            factor=0.65,
            interval=0.08,
        ),
        stopping=StoppingConfig(every=1, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ViterbiConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        return self


class PdppConfig(Frozen):
    """PDPP (projected diffusion): task, actions and observations as one matrix over time.

    Denoised by a temporal U-Net.

    Attributes:
        widths: Channels of the U-Net's levels, multiples of 8; no more levels than the horizon has
            steps.
        steps: Diffusion steps in training.
        sampling: Steps of the deterministic sampler (DDIM), at most `steps`.
        ends: Weight of the squared error of the first and the last action.
        normalise: Layer-normalise the observations first (published: no).
        centre: Subtract the training windows' mean observation first (published: no).
        dropout: Share of the observations' features zeroed in training (published: none).
        training: How it is trained.
    """

    widths: tuple[PositiveInt, ...] = Field((256, 512, 1024), min_length=1)
    steps: PositiveInt = 200
    sampling: PositiveInt = 10
    ends: float = Field(10.0, gt=0)
    normalise: bool = False
    centre: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=558,
            batch_size=256,
            learning_rate=5e-4,
            weight_decay=0.0,
            schedule="step",
            warmup=0.16667,
            factor=0.5,
            interval=0.25,
        ),
        ema=EmaConfig(decay=0.995, every=10, warmup=400),
        stopping=StoppingConfig(every=23, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _usable(self) -> PdppConfig:
        if any(width % 8 for width in self.widths):
            raise ValueError(f"widths {list(self.widths)} must be multiples of 8")
        if self.sampling > self.steps:
            raise ValueError(
                f"sampling takes {self.sampling} steps, more than the {self.steps} of the training"
            )
        return self
