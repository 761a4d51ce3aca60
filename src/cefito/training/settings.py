"""Settings of trainings, common and of field and classifier, and the record of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, model_validator

from cefito.runtime import Capability, Precision, Resolved
from cefito.settings import Settings


class OptimiserConfig(Settings):
    """AdamW."""

    epochs: int = Field(200, ge=1)  # most passes over the training windows
    batch_size: int = Field(128, ge=1)  # windows a step
    # leave out an epoch's last batch if it is smaller; the only batch of an epoch is kept
    drop_last: bool = False
    learning_rate: float = Field(5e-4, gt=0)
    weight_decay: float = Field(1e-3, ge=0)  # decoupled weight decay
    # "constant", "cosine" to zero over all epochs, or "step": times `factor` whenever `interval`
    # has passed
    schedule: Literal["constant", "cosine", "step"] = "constant"
    # share of all steps over which the step size first rises from zero in a straight line
    warmup: float = Field(0.0, ge=0, lt=1)
    factor: float = Field(0.5, gt=0, le=1)  # of "step": what the step size is multiplied by
    # of "step": share of all steps between two changes, counted from the end of the rise
    interval: float = Field(0.25, gt=0, le=1)
    clip: float = Field(0.0, ge=0)  # bound on the gradient's norm; 0 for none

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step of a training, given the steps of an epoch."""
        total = self.epochs * steps
        rising = self.warmup * total
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        done = (step - rising) / max(total - rising, 1)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        if self.schedule == "step":
            return self.learning_rate * self.factor ** int(
                (step - rising) / (self.interval * total) + 1e-9
            )
        return self.learning_rate


class EmaConfig(Settings):
    """Exponential moving average of the weights, which validation then sees and training keeps."""

    decay: float = Field(0.0, ge=0, lt=1)  # weight of the past at each update; 0 is off
    every: int = Field(10, ge=1)  # steps between updates
    # step of the first average; at earlier multiples of `every` the weights are copied
    warmup: int = Field(400, ge=0)


class StoppingConfig(Settings):
    """Early stopping and the choice of the best epoch, both on the validation split."""

    every: int = Field(1, ge=0)  # epochs between validations; 0 for none: the last epoch is kept
    # validations without a better score before training stops; 0 never stops early
    patience: int = Field(20, ge=0)
    windows: int = Field(200, ge=0)  # size of the fixed sample of validation windows; 0 for all
    # most candidates a validation window is searched over; larger action sets are thinned to a
    # fixed part that holds the true actions. Where these alone make more, as at long horizons, the
    # window is planned by guided search. Of the field only
    candidates: int = Field(20_000, ge=1)


class AugmentationConfig(Settings):
    """Changes of the observations in training (paper: none)."""

    noise: float = Field(0.0, ge=0)  # deviation of Gaussian noise, in deviations as `scale` says
    # deviations of each "feature" over the training windows, or the single one over all features
    # and windows of the "batch", initial and goal observations apart (released code)
    scale: Literal["feature", "batch"] = "feature"
    # chance that an observation is replaced by the observation of another training window of the
    # same task and first action (initial) or last action (goal)
    swap: float = Field(0.0, ge=0, le=1)


class TrainingConfig(Settings):
    """How a network is trained."""

    optimiser: OptimiserConfig = OptimiserConfig()
    ema: EmaConfig = EmaConfig()
    stopping: StoppingConfig = StoppingConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    # precision of matrix products: "float32", "bfloat16", or "auto", bfloat16 where the device
    # multiplies it natively. Weights, losses and the optimiser are float32
    precision: Precision = "auto"


class PlannerTrainingConfig(TrainingConfig):
    """How the network of a planner is trained, at the end on all videos that are not test."""

    # share of the epochs that it is trained further, once epochs and calibration are chosen, on
    # training and validation windows together; 0 for none
    all_videos: float = Field(0.0, ge=0, le=1)


class MarginConfig(Settings):
    """Adaptive margins (paper, Eq. 3)."""

    low: float = Field(0.01, ge=0)  # margin of the mildest negatives
    high: float = Field(0.1, ge=0)  # of the most severe ones; the supplement misprints it
    # weight of the fraction of differing positions (paper: 0)
    order: float = Field(0.0, ge=0, le=1)


class LossConfig(Settings):
    """The contrastive loss."""

    # "triplet" (paper), "softmax" over positive and negatives (InfoNCE), or "regression": the
    # positive's distance alone, the baseline of the paper's training analysis
    kind: Literal["triplet", "softmax", "regression"] = "triplet"
    # triplet only: mean over all triplets (paper) or over the "violating" ones (released code)
    reduction: Literal["mean", "violating"] = "mean"
    temperature: float = Field(1.0, gt=0)  # softmax only
    margin: MarginConfig = MarginConfig()  # triplet only


class NegativesConfig(Settings):
    """How many negatives of which kind."""

    # N, negatives a positive; all other sequences if these are fewer and at most 256
    count: int = Field(50, ge=1)
    # r, the share of hard ones among those neither permuted nor edited (paper: 0.8)
    hard: float = Field(0.8, ge=0, le=1)
    # share of N that reorders the positive (paper: none; released CrossTask T = 3: 0.08)
    permuted: float = Field(0.0, ge=0, le=1)
    # share of N that changes the positive at one position (paper: none)
    edited: float = Field(0.0, ge=0, le=1)
    # draw the shares above as exact numbers; otherwise draw the kind of each negative with the
    # shares as probabilities, until there are N (released code)
    exact: bool = True

    @model_validator(mode="after")
    def _shares_fit(self) -> NegativesConfig:
        if self.permuted + self.edited > 1:
            raise ValueError(f"permuted {self.permuted} and edited {self.edited} together exceed 1")
        if self.edited and not self.exact:
            raise ValueError("edited negatives are drawn in exact shares alone; set exact = true")
        return self

    def shares(self) -> tuple[int, int, int, int]:
        """Return the numbers of permuted, edited, hard and easy negatives; their sum is N."""
        permuted = round(self.permuted * self.count)
        edited = min(round(self.edited * self.count), self.count - permuted)
        hard = round(self.hard * (self.count - permuted - edited))
        return permuted, edited, hard, self.count - permuted - edited - hard


class AuxiliaryConfig(Settings):
    """Auxiliary action reconstruction (paper, Sec. 3.2 and Supp. A)."""

    weight: float = Field(1.0, ge=0)  # λ (not given; of most released presets); 0 is off
    # content of the state slots in the second pass: the predicted "states", embedded again, with
    # the logits of an action read at the state after it; or the "latents" of the first pass as they
    # are, with the logits read at the actions' own slots, without the final norm (released code)
    states: Literal["states", "latents"] = "states"
    # content of the goal's slot in the second pass: the "true" goal (paper) or the "predicted" one;
    # with "latents" it is always the predicted one
    goal: Literal["true", "predicted"] = "true"
    # reconstruct the actions of every negative too, with half the weight on them (released code)
    negatives: bool = False

    @model_validator(mode="after")
    def _goal_of_latents(self) -> AuxiliaryConfig:
        if self.states == "latents" and self.goal == "true":
            raise ValueError('goal = "true" has no latent; states = "latents" needs "predicted"')
        return self


class FieldTrainingConfig(TrainingConfig):
    """How the field is trained.

    Not in the paper: batch size (the released CrossTask's), schedule, clipping, averaged weights.
    """

    # longer than any released average of the weights reaches back
    stopping: StoppingConfig = StoppingConfig(patience=120)
    negatives: NegativesConfig = NegativesConfig()
    loss: LossConfig = LossConfig()
    auxiliary: AuxiliaryConfig = AuxiliaryConfig()


class ClassifierTrainingConfig(TrainingConfig):
    """How the task classifier is trained."""

    optimiser: OptimiserConfig = OptimiserConfig(learning_rate=1e-4, weight_decay=0.0)
    stopping: StoppingConfig = StoppingConfig(windows=0)
    # "windows" trains on the windows of the horizon (paper); "all" on every pair of steps i < j of
    # a video
    pairs: Literal["windows", "all"] = "windows"
    label_smoothing: float = Field(0.0, ge=0, lt=1)  # share of the target spread over all tasks


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training."""

    epochs: int  # epochs that were run
    best_epoch: int  # the epoch that was kept
    scores: tuple[float, ...]  # its validation scores
    resumed: bool  # whether it was resumed from a checkpoint
    metrics: tuple[str, ...] = ()  # names of the scores
    precision: Resolved = "float32"  # precision of matrix products
    # support of the device for bfloat16
    processor: Capability = field(default="none", compare=False)
