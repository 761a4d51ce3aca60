"""A small probe network: how much do observations tell of the task, the first and the last action?

It is the yardstick by which simulated observations are compared with real ones, not a planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["ProbeResult", "ProbeSettings", "run_probe"]

_PREDICTED_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Size and training of the probe: one hidden layer with dropout.

    It is trained by AdamW with a warm-up and a falling rate.

    Attributes:
        width: Hidden units.
        epochs: Passes over the training rows.
        batch: Rows a step.
        rate: Highest learning rate.
        decay: Weight decay.
        dropout: Share of hidden units dropped in training.
    """

    width: int = 512
    epochs: int = 10
    batch: int = 256
    rate: float = 1e-3
    decay: float = 0.05
    dropout: float = 0.2


@dataclass(frozen=True)
class ProbeResult:
    """What the probe predicts, one column a target.

    Attributes:
        train: Predicted labels of the rows it learned from, int64 [N, H].
        test: Predicted labels of the other rows, int64 [M, H].
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def run_probe(
    train: NDArray[np.float32],
    labels: NDArray[np.int64],
    test: NDArray[np.float32],
    *,
    classes: list[int],
    seed: int,
    settings: ProbeSettings | None = None,
    progress: Callable[[str], None] | None = None,
) -> ProbeResult:
    """Train the probe on cross-entropy, summed over targets, and predict.

    Args:
        train: Inputs to learn from, [N, D]; standardised here.
        labels: One label a target, [N, H].
        test: Inputs to predict only, [M, D].
        classes: Number of classes of each of the H targets.
        seed: Decides weights, order and dropout; the same seed on the same CPU gives the same
            predictions.
        settings: Size and training.
        progress: Called with a line now and then.
    """
    import torch

    chosen = settings or ProbeSettings()
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(train)
    mean, deviation = inputs.mean(dim=0), inputs.std(dim=0) + 1e-6
    inputs = (inputs - mean) / deviation
    targets = torch.from_numpy(np.ascontiguousarray(labels))
    bounds = np.cumsum([0, *classes]).tolist()
    sizes = (train.shape[1], chosen.width, bounds[-1])
    weights = []
    for size_in, size_out in ((sizes[0], sizes[1]), (sizes[1], sizes[2])):
        spread = size_in**-0.5
        weights.append(
            torch.empty(size_out, size_in).uniform_(-spread, spread, generator=generator)
        )
        weights.append(torch.zeros(size_out))
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(weights, lr=chosen.rate, weight_decay=chosen.decay)
    steps, step = chosen.epochs * -(-len(train) // chosen.batch), 0

    def heads(rows: torch.Tensor, dropout: float) -> list[torch.Tensor]:
        hidden = torch.nn.functional.linear(rows, weights[0], weights[1]).relu()
        if dropout:
            hidden = (
                hidden * (torch.rand(hidden.shape, generator=generator) >= dropout) / (1 - dropout)
            )
        logits = torch.nn.functional.linear(hidden, weights[2], weights[3])
        return [logits[:, low:high] for low, high in zip(bounds, bounds[1:], strict=False)]  # noqa: RUF007

    def predict(rows: torch.Tensor) -> NDArray[np.int64]:
        found = np.empty((len(rows), len(classes)), dtype=np.int64)
        with torch.no_grad():
            for low in range(0, len(rows), _PREDICTED_AT_ONCE):
                for column, logits in enumerate(heads(rows[low : low + _PREDICTED_AT_ONCE], 0.0)):
                    found[low : low + _PREDICTED_AT_ONCE, column] = logits.argmax(dim=1).numpy()
        return found

    for epoch in range(chosen.epochs):
        order = torch.randperm(len(train), generator=generator)
        for low in range(0, len(train), chosen.batch):
            rows = order[low : low + chosen.batch]
            losses = [
                torch.nn.functional.cross_entropy(logits, targets[rows, column])
                for column, logits in enumerate(heads(inputs[rows], chosen.dropout))
            ]
            optimizer.param_groups[0]["lr"] = chosen.rate * _share_of_rate(step, steps)
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(losses).sum())
            optimizer.step()
            step += 1
        if progress is not None:
            progress(f"probe: epoch {epoch + 1} of {chosen.epochs}")
    return ProbeResult(
        train=predict(inputs), test=predict((torch.from_numpy(test) - mean) / deviation)
    )


def _share_of_rate(step: int, steps: int) -> float:
    """Share of the highest learning rate: up in a tenth of the steps, then down along a cosine."""
    return min((step + 1) / (0.1 * steps), 0.5 + 0.5 * math.cos(math.pi * step / steps))
