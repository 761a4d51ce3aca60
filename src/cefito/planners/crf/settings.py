"""Settings of the chain."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from cefito.settings import Settings, check_weights
from cefito.training.settings import (
    AugmentationConfig,
    EmaConfig,
    OptimiserConfig,
    StoppingConfig,
    TrainingConfig,
)

__all__ = ["ChainConfig", "ChainSettings", "ChainTrainingConfig"]


class ChainConfig(Settings):
    """The network that scores a chain (not in the paper).

    Chosen on the validation windows of captaincook4d and of five draws of 8 of its recipes.

    Attributes:
        hidden: Width of the encoder's first linear layer.
        width: Width of encoded observations.
        emission: Width of the hidden layer between both encoded observations and the emissions.
        input_dropout: Share of the observations' features zeroed in training.
        dropout: Share of the encoded observations and of hidden units zeroed in training.
        scale: Initial factor, learned, of the cosines that predict an end.
        ends: Initial factor, learned, of the logits of each end that are added to the emissions of
            its step.
        smoothing: Added to each count of a transition within a task.
        learned: Learn transitions around the logarithms of the smoothed counts.
        normalise: Layer-normalise observations.
        centre: Subtract the training windows' mean observation first.
        members: Networks trained from different seeds, whose scores are averaged.
    """

    hidden: PositiveInt = 3072
    width: PositiveInt = 128
    emission: PositiveInt = 256
    input_dropout: float = Field(0.4, ge=0, lt=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    scale: float = Field(1 / 0.07, gt=0)
    ends: float = 0.3
    smoothing: float = Field(0.2, gt=0)
    learned: bool = True
    normalise: bool = True
    centre: bool = True
    members: PositiveInt = 1

    @model_validator(mode="after")
    def _fits_memory(self) -> ChainConfig:
        count = self.hidden * (1 + self.width) + self.emission * (1 + 2 * self.width)
        check_weights(self.members * count, "chains of these widths")
        return self


class ChainTrainingConfig(TrainingConfig):
    """How the chain is trained.

    Its last epoch is taken: a choice among epochs by few validation windows is mostly chance.

    Attributes:
        ends_weight: Weight of the mean cross-entropy of the first action, read from the initial
            observation alone, and of the last one, read from the goal alone.
    """

    optimiser: OptimiserConfig = OptimiserConfig(
        epochs=120, batch_size=256, learning_rate=9e-4, weight_decay=0.01, schedule="cosine"
    )
    ema: EmaConfig = EmaConfig(decay=0.0)
    stopping: StoppingConfig = StoppingConfig(every=10_000, patience=0, windows=0)
    augmentation: AugmentationConfig = AugmentationConfig(swap=0.5)
    ends_weight: float = Field(1.0, ge=0)


class ChainSettings(Settings):
    """The sections that the chain reads."""

    chain: ChainConfig = ChainConfig()
    chain_training: ChainTrainingConfig = ChainTrainingConfig()
