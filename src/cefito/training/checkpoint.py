"""Everything needed to go on after a kill, in one safetensors file that is replaced as a whole.

Tensors are named `model.…`, `average.…`, `best.…` and `optimiser.<parameter>.<slot>`; progress
stands in the file's metadata, with a digest of all that is compared when it is loaded. No generator
state is stored: every epoch draws from generators seeded by (seed, epoch).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.settings import Record

__all__ = [
    "TrainingState",
    "check_weights",
    "load_checkpoint",
    "load_weights",
    "save_checkpoint",
]

_AT_ONCE = 1 << 18  # numbers that are checked at once, for little memory beside that of the weights


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
    counters = {name: getattr(state, name) for name in _Counters.model_fields if name != "digest"}
    digest = _digest(counters, tensors)
    write_tensors(path, tensors, metadata={"state": json.dumps({**counters, "digest": digest})})


class _Counters(Record):
    """What stands in a checkpoint's metadata: the plain part of a `TrainingState`.

    Checkpoints of earlier versions have no digest.
    """

    key: str
    epoch: int = Field(ge=0)
    step: int = Field(ge=0)
    best: list[float]
    best_epoch: int = Field(ge=0)
    waited: int = Field(ge=0)
    finished: bool
    metrics: tuple[str, ...] = ()
    digest: str | None = None


def _digest(counters: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of all that a checkpoint holds."""
    digest = hashlib.sha256(json.dumps(counters, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(plain.dtype), list(plain.shape)]).encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_checkpoint(
    path: Path, key: str, module: nn.Module, optimiser: torch.optim.Optimizer
) -> TrainingState:
    """Load a checkpoint into a module and its optimiser.

    Raises:
        RunError: Missing, damaged, changed since it was written, the checkpoint of another
            training, or of tensors that do not fit the module and its optimiser.
    """
    remedy = "Remove it to train from the beginning."
    tensors, metadata = load_tensors(path, "pt", remedy, RunError)
    try:
        counters = _Counters.model_validate_json(metadata["state"], strict=True)
    except (KeyError, ValidationError) as problem:
        where = ""
        if isinstance(problem, ValidationError):
            first = problem.errors()[0]
            where = f" ({'.'.join(str(part) for part in first['loc'])}: {first['msg']})"
        raise RunError(f"{path}: not a checkpoint of this version{where}. {remedy}") from problem
    plain = counters.model_dump(exclude={"digest"})
    if counters.digest not in (None, _digest(plain, tensors)):
        raise RunError(
            f"{path}: has changed since it was written (its content differs from its own SHA-256). "
            f"{remedy}"
        )
    if counters.key != key:
        raise RunError(
            f"{path}: was made with another data set, other settings or another seed, or in "
            "another precision, and cannot be resumed with these. Train into another folder, or "
            "remove it."
        )
    parts: dict[str, dict[str, Tensor]] = {
        name: {} for name in ("model", "average", "best", "optimiser")
    }
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise RunError(f"{path}: tensor '{name}' is unknown. {remedy}")
        parts[part][rest] = tensor
    load_weights(module, parts["model"], str(path))
    for part in ("average", "best"):  # both may be empty
        if parts[part]:
            check_weights(module, parts[part], str(path))
    slots = _slots(parts["optimiser"], optimiser, f"{path}", remedy)
    saved = optimiser.state_dict()
    optimiser.load_state_dict({**saved, "state": slots})
    device = next(module.parameters()).device
    return TrainingState(
        **plain,
        average={name: tensor.to(device) for name, tensor in parts["average"].items()},
        best_weights={name: tensor.to(device) for name, tensor in parts["best"].items()},
    )


def _slots(
    tensors: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, place: str, remedy: str
) -> dict[int, dict[str, Tensor]]:
    """An optimiser's moments, by the number of the parameter; every parameter has all or none.

    Raises:
        RunError: They do not fit its parameters.
    """
    parameters = [one for group in optimiser.param_groups for one in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, slot = name.partition(".")
        fits = index.isdecimal() and int(index) < len(parameters)
        shape = parameters[int(index)].shape if fits and slot != "step" else torch.Size()
        if (
            not fits
            or slot not in ("step", "exp_avg", "exp_avg_sq")
            or tensor.shape != shape
            or not tensor.is_floating_point()
            or not bool(tensor.isfinite().all())
        ):
            raise RunError(
                f"{place}: tensor 'optimiser.{name}' does not fit this optimiser: "
                f"{tensor.dtype} {list(tensor.shape)}, or numbers that are none. {remedy}"
            )
        slots.setdefault(int(index), {})[slot] = tensor
    short = next((index for index, found in slots.items() if len(found) < 3), None)
    if short is not None:
        raise RunError(f"{place}: lacks moments of parameter {short} ('optimiser.…'). {remedy}")
    return slots


def load_weights(
    module: nn.Module, tensors: Mapping[str, Tensor], place: str, *, copy: bool = True
) -> None:
    """Load weights strictly.

    Args:
        module: What they are for.
        tensors: The weights, by name.
        place: The file that they come from, for messages.
        copy: Copy the numbers into the module's own; otherwise it takes these tensors themselves,
            as a module without memory of its own (on the device "meta") has to.

    Raises:
        RunError: As `check_weights`.
    """
    check_weights(module, tensors, place)
    module.load_state_dict(dict(tensors), assign=not copy)


def check_weights(module: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """See that weights are a module's own: all of them, of its shapes and types, and numbers.

    Args:
        module: What they are for.
        tensors: The weights, by name.
        place: The file that they come from, for the message.

    Raises:
        RunError: A name, shape or type does not fit, or a weight is NaN or infinite; the message
            names the first.
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
        if tensor.dtype != expected[name].dtype:
            raise RunError(
                f"{place}: tensor '{name}' is of type {tensor.dtype}; expected "
                f"{expected[name].dtype}."
            )
        if not all(bool(part.isfinite().all()) for part in tensor.flatten().split(_AT_ONCE)):
            bad = int((~tensor.isfinite()).sum())
            raise RunError(
                f"{place}: tensor '{name}' holds NaN or infinity ({bad} of {tensor.numel():,} "
                "numbers). Get the file again from where it is whole, or train again."
            )
