"""Settings of the recogniser of steps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cefito.settings import Settings


class RecogniserConfig(Settings):
    """How steps are recognised in the rows of whole videos (not in the paper).

    The defaults were chosen by folds over the training videos of two data sets.
    """

    members: int = Field(3, ge=1, le=64, description="Networks whose probabilities are averaged.")
    directions: int = Field(
        300,
        ge=1,
        le=1 << 16,
        description="Principal components that the numbers of a row are reduced to.",
    )
    width: int = Field(128, ge=1, le=1 << 16, description="Hidden units of each.")
    memories: tuple[Annotated[float, Field(gt=0, le=1e5)], ...] = Field(
        (2.0, 6.0, 20.0),
        max_length=16,
        description="Time constants of averages of past rows, in seconds.",
    )
    temporal_layers: int = Field(
        8, ge=0, le=12, description="Layers of the temporal network beside them; 0 for none."
    )
    temporal_passes: int = Field(
        60,
        ge=1,
        le=10_000,
        description="Times that its training sees as many rows as the videos have.",
    )
    training_steps: int = Field(400, ge=1, le=10**6, description="Batches that each is trained on.")
    batch_size: int = Field(256, ge=1, le=1 << 16)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(1.0, ge=0)
    input_dropout: float = Field(0.2, ge=0, lt=1)
    dropout: float = Field(0.5, ge=0, lt=1)
    phases: int = Field(
        4, ge=1, le=32, description="Most phases of a step; durations are negative binomial."
    )
    smoothing: float = Field(
        0.1, ge=1e-6, description="Weight of an action's frequency beside the transitions counted."
    )
    trusts: tuple[Annotated[float, Field(gt=0, le=10)], ...] = Field(
        (0.3, 0.6, 1.0),
        min_length=1,
        max_length=16,
        description="Powers of a row's likelihood, since rows resemble each other; one is chosen.",
    )
    prior_power: float = Field(
        0.8, ge=0, le=10, description="Power of the frequency that probabilities are divided by."
    )
    lag: float = Field(
        30.0, gt=0, le=3600, description="Seconds after which a row's step is settled."
    )
    folds: int = Field(
        3, ge=2, le=100, description="Parts of the videos held out in turn to calibrate."
    )
