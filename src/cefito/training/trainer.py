"""The training loop of every network: optimises, averages weights, keeps the best epoch, stops.

A killed training can be resumed; on a CPU, with bit-identical weights.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.locks import locked, remove_leftovers
from cefito.progress import Advance, Progress, silent
from cefito.runtime import Resolved, Stream, capability, determining, generator_for, resolve
from cefito.training.checkpoint import (
    CHECKPOINT,
    MetricsLog,
    TrainingState,
    load_checkpoint,
    save_checkpoint,
)
from cefito.training.settings import TrainingConfig, TrainingResult
from cefito.training.trackers import TrackerName

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Term:
    """One term of a loss: weight · Σ sum / Σ count over the parts of a batch."""

    weight: float  # weight in the loss
    sum: Tensor  # sum over rows, a scalar
    count: Tensor  # number of summands, a scalar


class Loss(Protocol):
    """A module with its training examples and its loss."""

    @property
    def module(self) -> nn.Module:
        """The module to train.

        It may have `parameter_groups()`, groups for the optimiser with the share `rate` of the
        learning rate that each has.
        """

    def __len__(self) -> int:
        """Number of training examples."""

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        # rows: numbers of the batch's examples [B]. A loss with large activations may also have
        # `parts`, which yields the losses of parts of the batch one after the other, all with the
        # counts of the whole batch: the activations of one part are kept at a time

    def validate(self) -> Mapping[str, float]:
        """Return scores on the validation split, higher is better; later ones break ties."""


class Training:
    """Trains the module of a loss in place; it ends with the weights of the best validated epoch.

    An existing checkpoint in the folder is resumed; one with another `key`, which holds everything
    that determines the result, is refused.

    Args:
        loss: Loss of the module.
        training: Settings.
        seed: Seed of the order of examples and of what losses draw.
        key: What determines the result.
        precision: Number format of forward and backward passes.
        folder: Of checkpoint and metrics; None keeps none.
        track: Program that gets the metrics, too.

    Raises:
        RunError: The checkpoint cannot be used or written.
    """

    def __init__(
        self,
        loss: Loss,
        *,
        training: TrainingConfig,
        seed: int,
        key: str,
        precision: Resolved = "float32",
        folder: Path | None = None,
        track: TrackerName | None = None,
    ) -> None:
        self.loss, self.module, self.config = loss, loss.module, training.optimiser
        self.ema, self.stopping, self.seed = training.ema, training.stopping, seed
        self.device = next(self.module.parameters()).device
        self.precision = precision
        groups = getattr(self.module, "parameter_groups", self.module.parameters)
        self.optimiser = torch.optim.AdamW(
            groups(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.state = TrainingState(key=sha256(key.encode()).hexdigest())
        self.checkpoint = folder / CHECKPOINT if folder else None
        self.resumed = self.checkpoint is not None and self.checkpoint.exists()
        if self.checkpoint is not None:
            remove_leftovers(self.checkpoint)
        if self.resumed and self.checkpoint is not None:
            self.state = load_checkpoint(
                self.checkpoint, self.state.key, self.module, self.optimiser
            )
        elif self.ema.decay:
            self.state.average = _copy(self.module)
        self.log = MetricsLog(folder, self.state.epoch, track, about=key) if folder else None

    def run(self, label: str = "training", progress: Progress = silent) -> TrainingResult:
        """Train until the last epoch, or until validation no longer improves."""
        self.label = label
        steps = math.ceil(len(self.loss) / self.config.batch_size)
        if self.config.drop_last:
            steps = max(len(self.loss) // self.config.batch_size, 1)
        examples = min(len(self.loss), steps * self.config.batch_size)  # of an epoch
        done = self.state.epoch
        said = f"{label}, resumed after epoch {done}" if done else label
        if not self.state.finished:
            with progress(said, total=(self.config.epochs - done) * examples) as advance:
                while not self.state.finished:
                    self._epoch(advance, steps)
        if self.log:
            self.log.close()
        if kept := self.state.best_weights or self.state.average:
            self.module.load_state_dict(kept)
        self.module.eval()
        return TrainingResult(
            epochs=self.state.epoch,
            best_epoch=self.state.best_epoch or self.state.epoch,
            scores=tuple(self.state.best),
            resumed=self.resumed,
            metrics=tuple(self.state.metrics),
            precision=self.precision,
            processor=capability(self.device),
        )

    def _epoch(self, advance: Advance, steps: int) -> None:
        started, state = time.monotonic(), self.state
        order = torch.randperm(
            len(self.loss), generator=generator_for("cpu", self.seed, state.epoch, Stream.ORDER)
        )
        draws = generator_for(self.device, self.seed, state.epoch, Stream.DRAWS)
        sums: dict[str, list[float]] = {}
        self.module.train()
        for rows in order.split(self.config.batch_size)[:steps]:
            for name, value in self.step(rows.to(self.device), draws, steps).items():
                sums.setdefault(name, []).append(value)
            advance(len(rows), note=f"epoch {state.epoch + 1}, loss {sums['loss'][-1]:.4g}")
        state.epoch += 1
        record: dict[str, float] = {
            "epoch": state.epoch,
            "step": state.step,
            "learning_rate": self.config.rate(state.step, steps),
        }
        record |= {name: sum(values) / len(values) for name, values in sums.items()}
        record["train_seconds"] = time.monotonic() - started
        last, every = state.epoch == self.config.epochs, self.stopping.every
        if every and (last or state.epoch % every == 0):
            record |= self._validate()
        patience = self.stopping.patience
        state.finished = last or bool(patience and state.waited >= patience)
        # before the checkpoint: a line too many is dropped on resuming, one too few would be lost
        if self.log:
            self.log.write(record)
        if self.checkpoint:
            save_checkpoint(self.checkpoint, state, self.module, self.optimiser)

    def step(self, rows: Tensor, draws: torch.Generator, steps: int) -> dict[str, float]:
        """Update the weights by one batch, and return its values.

        Args:
            rows: Numbers of its examples [B].
            draws: Generator of what is drawn.
            steps: Batches of the whole training.
        """
        rate = self.config.rate(self.state.step, steps)
        for parameter_group in self.optimiser.param_groups:
            parameter_group["lr"] = parameter_group.get("rate", 1.0) * rate
        self.optimiser.zero_grad(set_to_none=True)
        values = self._backward(rows, draws)
        if not bool(torch.isfinite(values["loss"])):
            raise RunError(
                f"the loss became {float(values['loss'])} at step {self.state.step + 1} (epoch "
                f"{self.state.epoch + 1}); the training has diverged. Lower the learning rate "
                f"(optimiser.learning_rate, now {self.config.learning_rate:g})."
            )
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        self.optimiser.step()
        self.state.step += 1
        self._average()
        return {name: float(value) for name, value in values.items()}

    def _backward(self, rows: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        """Add up the gradients of the parts of a batch; return its losses."""
        sums: dict[str, Tensor] = {}
        counts: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        parts = _parts(self.loss, rows, draws)
        while True:
            with torch.autocast(
                self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"
            ):
                terms = next(parts, None)
            if terms is None:
                break
            loss = torch.zeros((), device=self.device)  # Σ_k weight_k · sum_k / count_k
            for name, term in terms.items():
                if name not in counts:
                    counts[name] = term.count.clamp_min(1)
                    weights[name] = term.weight
                    sums[name] = torch.zeros_like(term.sum)
                loss = loss + term.weight * term.sum / counts[name]
                sums[name] += term.sum.detach()
            loss.backward()
        values = {name: value / counts[name] for name, value in sums.items()}
        values["loss"] = sum(
            (weights[name] * value for name, value in values.items()),
            start=torch.zeros((), device=self.device),
        )
        return values

    @torch.no_grad()
    def _average(self) -> None:
        """Update the moving average: θ̄ ← θ before the start, then decay · θ̄ + (1 − decay) · θ."""
        step = self.state.step
        if not self.state.average or step % self.ema.every:
            return
        current = self.module.state_dict()
        for name, tensor in self.state.average.items():
            if step < self.ema.warmup or not tensor.is_floating_point():
                tensor.copy_(current[name])
            else:
                tensor.lerp_(current[name], 1 - self.ema.decay)

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        started, state = time.monotonic(), self.state
        trained = _copy(self.module)
        if state.average:
            self.module.load_state_dict(state.average)
        self.module.eval()
        scores = self.loss.validate()
        values = list(scores.values())
        if not state.best or values > state.best:
            state.best, state.best_epoch, state.waited = values, state.epoch, 0
            state.metrics = list(scores)
            state.best_weights = _copy(self.module)
        else:
            state.waited += 1
        self.module.load_state_dict(trained)
        logger.info(
            "%s: epoch %d, step %d: %s",
            self.label,
            state.epoch,
            state.step,
            ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items()),
        )
        return {
            **{f"val_{name}": value for name, value in scores.items()},
            "val_seconds": time.monotonic() - started,
        }


def _parts(loss: Loss, rows: Tensor, draws: torch.Generator) -> Iterator[Mapping[str, Term]]:
    """Yield the losses of the parts of a batch, in most losses one part.

    Each is computed when it is asked for, in the caller's precision.
    """
    if parts := getattr(loss, "parts", None):
        yield from parts(rows, draws)
    else:
        yield loss.terms(rows, draws)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


class OpenLog(Protocol):
    """Opens the log of metrics of a network, or of a module of it."""

    def __call__(self, module: str = "") -> MetricsLog | None:
        """Return the log of a module; None if nothing is written."""


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """Where and how a planner trains, apart from its settings."""

    device: torch.device | str = "cpu"
    folder: Path | None = None  # of checkpoints and metrics; None keeps none
    name: str = ""  # folder below it, one for each network
    shared: bool = False  # equal trainings are done once, in folders named by a digest
    key: str = ""  # digest of data that determine the result; guards checkpoints
    progress: Progress = silent
    workers: int = 1  # processes for networks that do not depend on each other, on a CPU
    track: TrackerName | None = None  # program that gets the metrics, too

    def part(self, name: str) -> Self:
        """Return the context for one of a planner's networks."""
        return replace(self, name=name)

    def train(
        self, name: str, loss: Loss, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        """Train a loss's network in place."""
        precision = resolve(training.precision, self.device)
        # GPUs compute in bfloat16 and CPUs in float32 unless the key says otherwise
        other = [precision] if precision == "bfloat16" and str(self.device) == "cpu" else []
        key = json.dumps([name, self.key, seed, determining(settings), *other])
        place = self._place(key)
        options: dict[str, Any] = {"seed": seed, "precision": precision, "folder": place}
        options["track"] = self.track
        with self._alone(place):
            run = Training(loss, training=training, key=key, **options)
            return run.run(name, self.progress)

    def keep(
        self,
        name: str,
        network: nn.Module,
        train: Callable[[OpenLog], None],
        *,
        seed: int,
        settings: Any,
    ) -> bool:
        """Train a network in place by `train`, or take the weights that an earlier call reached.

        Return whether it was trained now. Nothing is kept of a network that is not finished.

        Args:
            name: Name that the weights are kept by.
            network: Network.
            train: Trains it; opens the log of metrics of each of its modules by name.
            seed: Seed of the training.
            settings: Settings of the training, as plain values.

        Raises:
            RunError: What was kept is of other data, settings or seed, or was changed.
        """
        key = json.dumps([name, self.key, seed, settings, str(self.device) != "cpu"])
        place, state = self._place(key), TrainingState(key=sha256(key.encode()).hexdigest())
        path = None if place is None else place / f"{name}.safetensors"
        with self._alone(place):
            if path is not None:
                remove_leftovers(path)
            if path is not None and path.exists():
                load_checkpoint(path, state.key, network)
                return False
            train(partial(self._log, place, name))
            if path is not None:
                state.finished = True
                save_checkpoint(path, state, network)
            return True

    def _log(self, place: Path | None, name: str, module: str = "") -> MetricsLog | None:
        network = f"{name}/{module}" if module else name
        return None if place is None else MetricsLog(place, 0, self.track, network=network)

    def _alone(self, place: Path | None) -> AbstractContextManager[None]:
        """Wait until no other process trains in a shared folder, and lock it."""
        if place is None or not self.shared:
            return nullcontext()
        return locked(place, "a training", wait=True)

    def _place(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        digest = f"-{sha256(key.encode()).hexdigest()[:12]}" if self.shared else ""
        place = self.folder / f"{self.name}{digest}" if self.name else self.folder
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RunError(f"{place}: cannot be made ({problem.strerror}).") from problem
        return place
