"""Settings of ViterbiPlanNet; the defaults are the published ones, repeated in `paper.toml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from cefito.settings import Settings, check_weights
from cefito.training.settings import OptimiserConfig, StoppingConfig, TrainingConfig

__all__ = ["Alignment", "ViterbiConfig", "ViterbiSettings"]

Alignment = Literal["file", "names", "free", "none"]


class ViterbiConfig(Settings):
    """ViterbiPlanNet (arXiv 2603.04265): emissions decoded by a differentiable Viterbi layer.

    Attributes:
        hidden: Width of the observation encoder's first layer.
        width: Width of tokens.
        heads: Attention heads of the emission network.
        feedforward: Width of its feed-forward layer.
        input_dropout: Share of the features of observations and descriptions zeroed in training.
        dropout: Share of the emission network's hidden units zeroed in training.
        normalise: Layer-normalise the observations first (published: raw).
        centre: Subtract the training windows' mean observation first (published: no).
        descriptions: Target of the observations' alignment in training. A .npy file with
            embeddings of descriptions of the state before and after each action, [K, 6, W] (three
            before, then three after), as published; or, without such a file, "names": fixed vectors
            hashed from the actions' names in their place; "free": a learned vector for before and
            one for after each action; "none": no alignment.
        name_width: W of the vectors that are hashed from names.
        alignment: Weight of the alignment loss; 0 for no alignment.
        task: Weight of the task loss; 0 for no task head.
        decoding: "viterbi" over the marginals with the raw transitions (published as DVL+VD), or
            the likeliest action of each step after the layer was applied to its own "marginals"
            again (published as DVL).
        members: Networks trained from seeds of their own, whose emissions are averaged (published:
            one).
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
    descriptions: str = Field("names", min_length=1)
    name_width: PositiveInt = 768
    alignment: float = Field(1.0, ge=0)
    task: float = Field(1.0, ge=0)
    decoding: Literal["viterbi", "marginals"] = "viterbi"
    members: PositiveInt = 1
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
    def _fits_memory(self) -> ViterbiConfig:
        block = 2 * self.width * (4 * self.width + self.feedforward)
        count = self.hidden * (1 + self.width) + block + self.name_width * (6 + self.width)
        check_weights(self.members * count, "networks of these widths")
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ViterbiConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        return self

    @property
    def aligned_with(self) -> Alignment:
        """Kind of the alignment's target; "none" if the alignment has no weight."""
        if not self.alignment or self.descriptions == "none":
            return "none"
        if self.descriptions == "names":
            return "names"
        return "free" if self.descriptions == "free" else "file"


class ViterbiSettings(Settings):
    """The sections that ViterbiPlanNet reads."""

    viterbi: ViterbiConfig = ViterbiConfig()
