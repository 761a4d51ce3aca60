"""Settings that every training has.

Optimiser, weight averaging, validation and stopping, changes of the observations.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cefito.field.config import Frozen

__all__ = ["AugmentationConfig", "EmaConfig", "OptimiserConfig", "StoppingConfig", "TrainingConfig"]


class OptimiserConfig(Frozen):
    """AdamW.

    Attributes:
        epochs: Most passes over the training windows.
        batch_size: Windows a step, over all processes.
        learning_rate: Step size.
        weight_decay: Decoupled weight decay.
        schedule: "constant", "cosine" to zero over all epochs, or "step": times `factor` whenever
            `interval` has passed.
        warmup: Share of all steps over which the step size first rises from zero in a straight
            line.
        factor: Of "step": what the step size is multiplied by.
        interval: Of "step": share of all steps between two changes, counted from the end of the
            rise.
        clip: Bound on the gradient's norm; 0 for none.
    """

    epochs: int = Field(200, ge=1)
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(5e-4, gt=0)
    weight_decay: float = Field(1e-3, ge=0)
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: float = Field(0.0, ge=0, lt=1)
    factor: float = Field(0.5, gt=0, le=1)
    interval: float = Field(0.25, gt=0, le=1)
    clip: float = Field(0.0, ge=0)


class EmaConfig(Frozen):
    """Exponential moving average of the weights.

    Where on, the averaged weights are validated and kept.

    Attributes:
        decay: Weight of the past at each update; 0 is off.
        every: Steps between updates.
        warmup: Steps during which the average is a copy.
    """

    decay: float = Field(0.0, ge=0, lt=1)
    every: int = Field(10, ge=1)
    warmup: int = Field(400, ge=0)


class StoppingConfig(Frozen):
    """Early stopping and the choice of the best epoch, both on the validation split.

    Attributes:
        every: Epochs between validations.
        patience: Validations without a better score before training stops; 0 never stops early.
        windows: Size of the fixed sample of validation windows; 0 for all.
        candidates: Most candidates a validation window is searched over; larger action sets are
            thinned to a fixed part that holds the true actions. Of the field only.
    """

    every: int = Field(1, ge=1)
    patience: int = Field(20, ge=0)
    windows: int = Field(200, ge=0)
    candidates: int = Field(20_000, ge=1)


class AugmentationConfig(Frozen):
    """Changes of the observations in training (paper: none).

    Attributes:
        noise: Deviation of Gaussian noise, in deviations of each feature over the training windows.
        swap: Chance that an observation is replaced by that of another training window of the same
            task whose first action (for the initial one) or last action (for the goal) is the same.
    """

    noise: float = Field(0.0, ge=0)
    swap: float = Field(0.0, ge=0, le=1)


class TrainingConfig(Frozen):
    """How a network is trained."""

    optimiser: OptimiserConfig = OptimiserConfig()
    ema: EmaConfig = EmaConfig()
    stopping: StoppingConfig = StoppingConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
