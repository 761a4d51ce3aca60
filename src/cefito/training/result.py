"""The record of a training, which is read without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field

from cefito.runtime import Capability, Resolved


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
