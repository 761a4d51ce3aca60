"""A small probe network: how well do observations predict the task, the first and last action?

It compares simulated observations with real ones; it is not a planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_PREDICTED_AT_ONCE = 2048


def run_probe(
    train: NDArray[np.float32],  # [N, D], standardised here
    labels: NDArray[np.int64],  # [N, H]
    test: NDArray[np.float32],  # [M, D]
    *,
    classes: list[int],  # of each target
    seed: int,
    width: int = 512,
    epochs: int = 10,
    batch: int = 256,
    rate: float = 1e-3,  # highest, after a warm-up and before a cosine decay
    decay: float = 0.05,
    dropout: float = 0.2,
    progress: Callable[[str], None] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Train one hidden layer on cross-entropy, summed over the H targets, with AdamW.

    Return the predicted labels of the training inputs [N, H] and of the test inputs [M, H].
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(train)
    mean, deviation = inputs.mean(dim=0), inputs.std(dim=0) + 1e-6
    inputs = (inputs - mean) / deviation
    targets = torch.from_numpy(np.ascontiguousarray(labels))
    bounds = np.cumsum([0, *classes]).tolist()
    sizes = (train.shape[1], width, bounds[-1])
    weights = []
    for size_in, size_out in pairwise(sizes):
        spread, weight = size_in**-0.5, torch.empty(size_out, size_in)
        weights += [weight.uniform_(-spread, spread, generator=generator), torch.zeros(size_out)]
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    steps, step = epochs * -(-len(train) // batch), 0

    def heads(rows: torch.Tensor, share: float) -> list[torch.Tensor]:
        hidden = torch.nn.functional.linear(rows, weights[0], weights[1]).relu()
        if share:
            kept = torch.rand(hidden.shape, generator=generator) >= share
            hidden = hidden * kept / (1 - share)
        logits = torch.nn.functional.linear(hidden, weights[2], weights[3])
        return [logits[:, low:high] for low, high in pairwise(bounds)]

    def predict(rows: torch.Tensor) -> NDArray[np.int64]:
        found = np.empty((len(rows), len(classes)), dtype=np.int64)
        with torch.no_grad():
            for low in range(0, len(rows), _PREDICTED_AT_ONCE):
                for column, logits in enumerate(heads(rows[low : low + _PREDICTED_AT_ONCE], 0.0)):
                    found[low : low + _PREDICTED_AT_ONCE, column] = logits.argmax(dim=1).numpy()
        return found

    for epoch in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        for low in range(0, len(train), batch):
            rows = order[low : low + batch]
            losses = [
                torch.nn.functional.cross_entropy(logits, targets[rows, column])
                for column, logits in enumerate(heads(inputs[rows], dropout))
            ]
            optimizer.param_groups[0]["lr"] = rate * _share_of_rate(step, steps)
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(losses).sum())
            optimizer.step()
            step += 1
        if progress is not None:
            progress(f"probe: epoch {epoch + 1} of {epochs}")
    return predict(inputs), predict((torch.from_numpy(test) - mean) / deviation)


def _share_of_rate(step: int, steps: int) -> float:
    """Share of the highest learning rate: linear in the first tenth, then along a cosine."""
    return min((step + 1) / (0.1 * steps), 0.5 + 0.5 * math.cos(math.pi * step / steps))
