"""Files of a training: a checkpoint that is replaced whole, and metrics of every epoch.

The checkpoint holds everything needed to resume. Tensors are `model.…`, `average.…`, `best.…` and
`optimiser.<parameter>.<slot>`. No generator state is stored: every epoch draws from generators
seeded by (seed, epoch).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import (
    append_lines,
    check_regular,
    load_tensors,
    load_weights,
    read_text,
    write_tensors,
    write_text,
)
from cefito.settings import Record
from cefito.training.trackers import TrackerName, open_tracker

CHECKPOINT = "checkpoint.safetensors"
"""File of what a killed training goes on from."""
_REMEDY = "Remove it to train from the beginning."


@dataclass
class TrainingState:
    """Progress of a training."""

    # digest of the network, data, settings and seed; a checkpoint with another key is refused
    key: str
    epoch: int = 0
    step: int = 0
    # best validation scores so far, compared from the left
    best: list[float] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    best_epoch: int = 0  # epoch that had them
    waited: int = 0  # validations since then
    finished: bool = False  # whether training has ended
    # averaged weights, by name; empty without averaging
    average: dict[str, Tensor] = field(default_factory=dict)
    # weights of the best epoch, by name
    best_weights: dict[str, Tensor] = field(default_factory=dict)


class _Counters(Record):
    """The plain fields of a `TrainingState`, and the digest of the checkpoint."""

    key: str
    epoch: int
    step: int
    best: list[float]
    metrics: list[str]
    best_epoch: int
    waited: int
    finished: bool
    digest: str


def save_checkpoint(
    path: Path,
    state: TrainingState,
    module: nn.Module,
    optimiser: torch.optim.Optimizer | None = None,
) -> None:
    """Replace the checkpoint; if writing fails, the previous one stays.

    Args:
        path: File.
        state: Counters, averages and best weights.
        module: Network that is trained.
        optimiser: Its optimiser; None once it is finished.
    """
    tensors = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.best_weights.items()}
    moments = {} if optimiser is None else optimiser.state_dict()["state"]
    for index, slots in moments.items():
        tensors |= {f"optimiser.{index}.{slot}": tensor for slot, tensor in slots.items()}
    counters = {name: getattr(state, name) for name in _Counters.model_fields if name != "digest"}
    digest = _digest(counters, tensors)
    write_tensors(path, tensors, metadata={"state": json.dumps({**counters, "digest": digest})})


def _digest(counters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the content of a checkpoint."""
    digest = hashlib.sha256(json.dumps(counters, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(plain.dtype), list(plain.shape)]).encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def checkpoint_epoch(path: Path) -> int:
    """Return the epoch of a checkpoint, of which only the header is read."""
    check_regular(path, _REMEDY, RunError)
    try:
        with safe_open(path, framework="np") as archive:
            return int(json.loads((archive.metadata() or {})["state"])["epoch"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as problem:
        raise RunError(f"{path}: not a checkpoint of this version. {_REMEDY}") from problem


def load_checkpoint(
    path: Path, key: str, module: nn.Module, optimiser: torch.optim.Optimizer | None = None
) -> TrainingState:
    """Load a checkpoint into a module and its optimiser.

    Args:
        path: File.
        key: Key that the checkpoint must have.
        module: Network that takes the weights.
        optimiser: Its optimiser; None to load the network alone.
    """
    tensors, metadata = load_tensors(path, "pt", _REMEDY, RunError)
    try:
        counters = _Counters.model_validate_json(metadata["state"], strict=True)
    except (KeyError, ValidationError) as problem:
        raise RunError(f"{path}: not a checkpoint of this version. {_REMEDY}") from problem
    plain = counters.model_dump(exclude={"digest"})
    if counters.digest != _digest(plain, tensors):
        raise RunError(
            f"{path}: has changed since it was written (its content differs from its own SHA-256). "
            f"{_REMEDY}"
        )
    if counters.key != key:
        raise RunError(
            f"{path}: was made with another data set, other settings or another seed, by other "
            "code of a package, or in another precision, and cannot be resumed with these. Train "
            "into another folder, or remove it."
        )
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "best": {}, "optimiser": {}}
    for name, tensor in tensors.items():
        section, _, weight = name.partition(".")
        parts[section][weight] = tensor
    load_weights(module, parts["model"], str(path))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimiser"].items():
        index, _, slot = name.partition(".")
        slots.setdefault(int(index), {})[slot] = tensor
    if optimiser is not None:
        optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
    device = next(module.parameters()).device
    return TrainingState(
        **plain,
        average={name: tensor.to(device) for name, tensor in parts["average"].items()},
        best_weights={name: tensor.to(device) for name, tensor in parts["best"].items()},
    )


class MetricsLog:
    """Writes `metrics.jsonl` of a training, whose lines after `epoch` are dropped; and `track`.

    Networks of a part share the file: their lines have a name, and steps in place of epochs.

    Args:
        folder: Folder of the training.
        epoch: The last epoch of the checkpoint.
        track: Program that gets the lines, too; None for none.
        names: `network` and `about` of `open_tracker`; "" without a name.
    """

    def __init__(
        self, folder: Path, epoch: int, track: TrackerName | None = None, **names: str
    ) -> None:
        names = {"network": "", "about": "", **names}
        self.path, self.network = folder / "metrics.jsonl", (network := names["network"])
        lines = read_metrics(self.path) if self.path.exists() else []
        kept = [
            line
            for line in lines
            if line.get("network", "") != network or line.get("epoch", 1) <= epoch
        ]
        if kept and kept[-1].get("epoch", epoch) < epoch:
            raise RunError(
                f"{self.path}: ends with epoch {kept[-1]['epoch']}, but the checkpoint beside it "
                f"is of epoch {epoch}. Remove the file to go on without its earlier lines."
            )
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        earlier = [] if network else kept
        self._tracker = None if track is None else open_tracker(track, folder, earlier, **names)

    def write(self, values: dict[str, Any]) -> None:
        """Append one epoch, or one step of a named network, of flat numbers."""
        named = {"network": self.network, **values} if self.network else values
        append_lines(self.path, [json.dumps(named)])
        if self._tracker is not None:
            self._tracker.write(values)

    def close(self) -> None:
        """End what draws the metrics."""
        if self._tracker is not None:
            self._tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a `metrics.jsonl`, without a last line cut short by a kill."""
    remedy = "Remove the file to go on without its earlier lines."
    texts = read_text(path, remedy, RunError).split("\n")
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        place = f"{path}, line {number}"
        if not text and number == len(texts):
            break
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as problem:
            if number == len(texts):  # no end of line: the process was killed while it wrote
                break
            raise RunError(f"{place}: not valid JSON. {remedy}") from problem
        if not isinstance(line, dict) or not all(
            type(value) in (int, float) and math.isfinite(value)
            for name, value in line.items()
            if name != "network"
        ):
            raise RunError(f"{place}: expected an object of finite numbers. {remedy}")
        if "network" in line:
            lines.append(line)
            continue
        due = lines[-1]["epoch"] + 1 if lines else max(1, int(line.get("epoch", 1)))
        if type(line.get("epoch")) is not int or line["epoch"] != due:
            raise RunError(f"{place}: is of epoch {line.get('epoch')!r}; expected {due}. {remedy}")
        lines.append(line)
    return lines


def incomplete(folder: Path) -> str:
    """Return how many epochs the metrics of a training have, if their checkpoint has more."""
    metrics, checkpoint = folder / "metrics.jsonl", folder / CHECKPOINT
    if not checkpoint.exists():
        return ""
    there = len(read_metrics(metrics)) if metrics.exists() else 0
    epochs = checkpoint_epoch(checkpoint)
    return f"has {there} of {epochs} epochs" if there < epochs else ""
