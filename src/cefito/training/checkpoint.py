"""Everything needed to go on after a kill, in one safetensors file that is replaced as a whole.

Tensors are named `model.…`, `average.…`, `best.…` and `optimiser.<parameter>.<slot>`; progress
stands in the file's metadata. No generator state is stored: every epoch draws from generators
seeded by (seed, epoch).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors

__all__ = ["TrainingState", "load_checkpoint", "load_weights", "save_checkpoint"]


@dataclass
class TrainingState:
    """How far a training is.

    Attributes:
        key: What is being trained, on what, with which settings and seed; a checkpoint of another
            key is refused.
        epoch: Finished epochs.
        step: Optimisation steps.
        best: Best validation scores so far, compared from the left.
        metrics: Their names.
        best_epoch: Epoch that had them.
        waited: Validations since then.
        finished: Whether training has ended.
        average: Averaged weights, by name; empty without averaging.
        best_weights: Weights of the best epoch, by name.
    """

    key: str
    epoch: int = 0
    step: int = 0
    best: list[float] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    best_epoch: int = 0
    waited: int = 0
    finished: bool = False
    average: dict[str, Tensor] = field(default_factory=dict)
    best_weights: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(
    path: Path, state: TrainingState, module: nn.Module, optimiser: torch.optim.Optimizer
) -> None:
    """Replace the checkpoint; on a full disk the previous one stays.

    Raises:
        RunError: The file could not be written.
    """
    tensors = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.best_weights.items()}
    for index, slots in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{slot}": tensor for slot, tensor in slots.items()}
    counters = {
        name: value
        for name, value in vars(state).items()
        if name not in ("average", "best_weights")
    }
    write_tensors(path, tensors, metadata={"state": json.dumps(counters)})


def load_checkpoint(
    path: Path, key: str, module: nn.Module, optimiser: torch.optim.Optimizer
) -> TrainingState:
    """Load a checkpoint into a module and its optimiser.

    Raises:
        RunError: Missing, damaged, or the checkpoint of another training.
    """
    remedy = "Remove it to train from the beginning."
    tensors, metadata = load_tensors(path, "pt", remedy, RunError)
    try:
        counters = json.loads(metadata["state"])
        names = ("model", "average", "best", "optimiser")
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for name, tensor in tensors.items():
            part, rest = name.split(".", 1)
            parts[part][rest] = tensor
        state = TrainingState(**counters, average=parts["average"], best_weights=parts["best"])
    except (KeyError, TypeError, ValueError) as problem:
        raise RunError(
            f"{path}: not a checkpoint of this version ({problem!r}). {remedy}"
        ) from problem
    if state.key != key:
        raise RunError(
            f"{path}: was made with another data set, other settings or another seed, and cannot "
            "be resumed with these. Train into another folder, or remove it."
        )
    load_weights(module, parts["model"], str(path))
    device = next(module.parameters()).device
    slots: dict[int, dict[str, Any]] = {}
    for name, tensor in parts["optimiser"].items():
        index, slot = name.split(".")
        slots.setdefault(int(index), {})[slot] = tensor
    saved = optimiser.state_dict()
    optimiser.load_state_dict({**saved, "state": slots})
    for tensors_by_name in (state.average, state.best_weights):
        for name, tensor in tensors_by_name.items():
            tensors_by_name[name] = tensor.to(device)
    return state


def load_weights(module: nn.Module, tensors: dict[str, Tensor], place: str) -> None:
    """Load weights strictly.

    Raises:
        RunError: A name or shape does not fit; the message names the first.
    """
    expected = module.state_dict()
    wrong = sorted(set(expected) ^ set(tensors))
    if wrong:
        where = "is missing" if wrong[0] in expected else "is unknown"
        raise RunError(
            f"{place}: tensor '{wrong[0]}' {where}; the file does not belong to this configuration."
        )
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise RunError(
                f"{place}: tensor '{name}' has shape {list(tensor.shape)}; expected "
                f"{list(expected[name].shape)}."
            )
    module.load_state_dict(tensors)
