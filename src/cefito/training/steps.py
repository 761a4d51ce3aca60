"""Training for a number of steps, by batches that the loss draws itself; nothing is validated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.progress import Advance, EnoughSteps
from cefito.runtime import Resolved
from cefito.training.checkpoint import MetricsLog
from cefito.training.trainer import OpenLog, TrainingContext

_EVERY = 50  # steps of a line of metrics


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


@dataclass(frozen=True, kw_only=True)
class NetworkTraining:
    """Where a network is trained for steps, from which seed, and by which name it is kept."""

    context: TrainingContext
    advance: Advance  # is told of each step
    seed: int  # of all that is drawn
    name: str = ""  # in the context's folder

    def of(self, name: str, seed: int | None = None) -> Self:
        """Return that of another network: its name follows this one, its seed may be another."""
        return replace(self, name=self.name + name, seed=self.seed if seed is None else seed)

    @contextmanager
    def seeded(self) -> Iterator[torch.device]:
        """Yield the device; PyTorch draws from the seed until the end, and then as before."""
        device = torch.device(self.context.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            yield device

    def keep(
        self, network: nn.Module, train: Callable[[OpenLog], None], settings: Any, steps: int
    ) -> None:
        """Train a network in place, or take the weights that an earlier call reached.

        Args:
            network: Network, which is ready for use afterwards.
            train: As of `TrainingContext.keep`, as are the settings and errors.
            settings: Settings of the training, as plain values.
            steps: Number of steps, which weights that are taken count as.
        """
        if not self.context.keep(self.name, network, train, seed=self.seed, settings=settings):
            self.advance(steps)
        network.eval()


def take_steps(
    network: nn.Module,
    loss: Callable[[], Tensor],
    steps: Steps,
    advance: Advance,
    log: MetricsLog | None = None,
) -> None:
    """Train a network in place (RunError if the loss becomes NaN or infinite).

    Args:
        network: Network.
        loss: Is called once a step; returns a scalar.
        steps: Number of steps, learning rate and the rest.
        advance: Called after each step; if it raises `EnoughSteps`, the training ends.
        log: Gets the mean loss of every 50 steps.
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
    reduced = steps.precision == "bfloat16"
    losses, started = list[float](), time.monotonic()
    for step in range(1, steps.count + 1):
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=reduced):
            value = loss()
        losses.append(value.item())
        if not math.isfinite(losses[-1]):
            raise RunError(
                f"the loss became {losses[-1]} at step {step}; the training has diverged. "
                f"Lower the learning rate ({steps.setting}, now {rate:g}).",
                setting=steps.setting,
            )
        value.backward()
        if steps.clip:
            nn.utils.clip_grad_norm_([weights], steps.clip)
        optimiser.step()
        if log is not None and (step % _EVERY == 0 or step == steps.count):
            seconds, rate = time.monotonic() - started, optimiser.param_groups[0]["lr"]
            mean = sum(losses) / len(losses)
            log.write({"step": step, "learning_rate": rate, "loss": mean, "train_seconds": seconds})
            losses, started = [], time.monotonic()
        if schedule is not None:
            schedule.step()
        try:
            advance(1)
        except EnoughSteps:
            advance(steps.count - step)
            break
    if log is not None:
        log.close()
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
