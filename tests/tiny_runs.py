"""Settings of trainings that take a second, and runs made with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TINY_RUN: dict[str, Any] = {
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "field.action_dim": 8,
    "training.optimiser.epochs": 1,
    "training.negatives.count": 4,
    "training.stopping.windows": 10,
    "training.stopping.candidates": 30,
    "chain.hidden": 16,
    "chain.width": 16,
    "chain.emission": 16,
    "chain_training.optimiser.epochs": 2,
    "classifier.hidden": [8, 16, 8],
    "classifier_training.optimiser.epochs": 2,
    "classifier_training.optimiser.learning_rate": 0.02,
}
"""Of any preset; a CEFITO that has learned hardly anything."""


def as_arguments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
