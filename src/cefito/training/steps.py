"""Training for a number of steps, by batches that the loss draws itself; nothing is validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import TypeAlias

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.progress import Advance, EnoughSteps
from cefito.runtime import Resolved

_TOLD = 100  # times that a training of many steps tells its metrics


Tell: TypeAlias = Callable[[Mapping[str, float]], None]
"""Takes metrics of a training, by name."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How many steps of AdamW, and how large they are."""

    count: int
    learning_rate: float  # the largest
    setting: str  # that holds it
    weight_decay: float = 0.0
    clip: float = 0.0  # bound on the gradient's norm; 0 for none
    # the learning rate rises over a tenth of the steps and falls as a cosine; else it is constant
    one_cycle: bool = True
    precision: Resolved = "float32"  # of matrix products


def take_steps(
    network: nn.Module,
    loss: Callable[[], Tensor],
    steps: Steps,
    advance: Advance,
    tell: Tell | None = None,
    part: str = "",
) -> None:
    """Train a network in place.

    Args:
        network: Network.
        loss: Is called once a step; returns a scalar.
        steps: Number of steps, learning rate and the rest.
        advance: Called after each step; if it raises `EnoughSteps`, the training ends.
        tell: Called with the mean loss since the last call and the learning rate, some 100 times.
        part: Stands before their names.

    Raises:
        RunError: The loss became NaN or infinite.
    """
    rate, device = steps.learning_rate, next(network.parameters()).device.type
    weights = _joined(network)
    optimiser = torch.optim.AdamW(
        [weights],
        lr=rate,
        weight_decay=steps.weight_decay,
        fused=device in ("cpu", "cuda"),  # one call for all weights
    )
    schedule = None
    if steps.one_cycle:
        rise = 0.1 if steps.count != 10 else 0.11  # PyTorch divides by a rise of no step
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, rate, total_steps=steps.count, pct_start=rise
        )
    reduced, losses = steps.precision == "bfloat16", list[float]()
    for step in range(steps.count):
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=reduced):
            value = loss()
        losses.append(value.item())
        if not isfinite(losses[-1]):
            raise RunError(
                f"the loss became {losses[-1]} at step {step + 1}; the training has diverged. "
                f"Lower the learning rate ({steps.setting}, now {rate:g}).",
                setting=steps.setting,
            )
        value.backward()
        if steps.clip:
            nn.utils.clip_grad_norm_([weights], steps.clip)
        optimiser.step()
        if len(losses) >= steps.count / _TOLD or step == steps.count - 1:
            told = {"loss": fmean(losses), "learning_rate": optimiser.param_groups[0]["lr"]}
            if tell is not None:
                tell({part + name: number for name, number in told.items()})
            losses.clear()
        if schedule is not None:
            schedule.step()
        try:
            advance(1)
        except EnoughSteps:
            advance(steps.count - step - 1)
            break
    for weight in network.parameters():
        weight.data, weight.grad = weight.data.clone(), None


def _joined(network: nn.Module) -> Tensor:
    """Return all weights, and their gradients, as one vector, of which each becomes a part.

    One call for all of them takes a fraction of the time of one call for each.
    """
    parts = [*network.parameters()]
    joined = torch.cat([part.data.flatten() for part in parts])
    joined.grad, start = torch.zeros_like(joined), 0
    for part in parts:
        place = slice(start, start := start + part.numel())
        part.data, part.grad = joined[place].view_as(part), joined.grad[place].view_as(part)
    return joined
