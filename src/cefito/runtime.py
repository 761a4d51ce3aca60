"""What a computation runs with: device, precision, seeds and streams of random draws.

A network computes in float32, or in bfloat16 where the processor multiplies it. In trainings
products of matrices are what is taken in bfloat16; weights, losses, distances and the optimiser
stay in float32.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum, unique
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cefito.errors import ConfigError, RunError, explained

if TYPE_CHECKING:
    import torch
    from torch import nn

Precision = Literal["auto", "float32", "bfloat16"]
Resolved = Literal["float32", "bfloat16"]
Capability = Literal["CUDA", "AMX", "AVX512-BF16", "none"]

_MULTIPLIERS: tuple[tuple[Capability, str], ...] = (
    ("AMX", "_is_amx_tile_supported"),
    ("AVX512-BF16", "_is_avx512_bf16_supported"),
)  # the quicker first, and what PyTorch is asked


def capability(device: torch.device | str) -> Capability:
    """What a device multiplies bfloat16 natively by; "none" where it would only be slower."""
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        return "CUDA"
    return _processor() if kind == "cpu" else "none"


def resolve(precision: Precision, device: torch.device | str) -> Resolved:
    """What a precision comes to on a device.

    "auto" is bfloat16 where the device multiplies it natively, else float32.
    """
    if precision != "auto":
        return precision
    return "float32" if capability(device) == "none" else "bfloat16"


@contextmanager
def weights_to_come() -> Iterator[None]:
    """Build modules without memory for their weights, and without initial values.

    PyTorch draws initial values on its device "meta", too; the first of them imports what takes a
    second.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Undrawn(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(function, "__module__", "") == "torch.nn.init":
                return (*args, *(kwargs or {}).values())[0]  # the tensor
            return function(*args, **(kwargs or {}))

    with torch.device("meta"), Undrawn():
        yield


@cache
def _processor() -> Capability:
    import torch

    if platform.machine().lower() in ("x86_64", "amd64"):
        for kind, question in _MULTIPLIERS:
            if getattr(torch.cpu, question, bool)():  # a private function, which may go
                return kind
    return "none"


@contextmanager
def full_precision() -> Iterator[None]:
    """Leave `torch.autocast`, whichever the caller has entered; a context or a decorator."""
    import torch

    with torch.autocast("cpu", enabled=False):
        if not torch.cuda.is_available():
            yield
            return
        with torch.autocast("cuda", enabled=False):
            yield


def determining(settings: Any, *values: Precision) -> Any:
    """Return settings for JSON, without the precisions of trainings, at any depth."""
    if isinstance(settings, Mapping):
        kept = {name: determining(value, *values) for name, value in settings.items()}
        trains = "optimiser" in settings and "precision" in settings
        if trains and (not values or settings["precision"] in values):
            del kept["precision"]
        return kept
    if isinstance(settings, list | tuple):
        return [determining(setting, *values) for setting in settings]
    return settings


_KINDS = ("cpu", "cuda", "mps", "xpu")
"""Kinds of devices that compute; PyTorch knows more names, such as "meta"."""


@unique
class Stream(IntEnum):
    """Streams that every training draws from, behind its seed and the number of an epoch.

    The weights of each network come from a stream directly behind the seed, whose number is
    declared beside the network or follows from its name (`named_stream`): none shifts another.
    Zeros at the end do not count in a seed sequence, so that the order of epoch 2 starts from the
    same state as the weights of stream 2, and so on; separating them would change every result.
    """

    ORDER = 0
    DRAWS = 1


@unique
class SimulationStream(IntEnum):
    """Streams that simulated observations and worlds draw from."""

    CAMERA = 1
    STYLES = 2
    NOISE = 3
    CONFUSION = 4
    SPREAD = 5
    WORLD = 100
    FILMS = 101


def generator_for(device: torch.device | str, *parts: int) -> torch.Generator:
    """Return a generator seeded by all parts: the seed, perhaps an epoch, and the stream."""
    import torch

    return torch.Generator(device=device).manual_seed(derived_seed(*parts))


def derived_seed(*parts: int) -> int:
    """Return a seed that follows from all parts (a seed, a stream and further numbers)."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def named_stream(name: str) -> int:
    """Return the number of a network's stream of random draws: a stable hash of its name."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big")


def check_seed(seed: int) -> None:
    """Refuse a seed that is negative or has more than 63 bits (ConfigError)."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed {seed}: expected a whole number, 0 to 2**63 - 1.", setting="seed")


def pick_device(name: str = "auto", *, float64: bool = True) -> torch.device:
    """Return a device by its name; "auto" takes CUDA if available, else the CPU.

    `float64` says whether numbers of 64 bits are needed (not in encoders), which MPS lacks.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place, remedy = f"device '{name}'", "Choose auto, cpu, cuda or mps."
    with explained(place, "is unknown", remedy, RuntimeError, error=RunError, setting="device"):
        device = torch.device(name)
    available = {
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    fault = ""
    if device.type not in _KINDS or not available.get(device.type, True):
        fault = "PyTorch cannot compute there on this machine"
    elif device.type == "mps" and float64:
        fault = "has no numbers of 64 bits, which training and planning need"
    if fault:
        raise RunError(f"{place}: {fault}. Use 'cpu'.", setting="device")
    return device


def return_memory() -> None:
    """Return freed memory to the system; glibc keeps it otherwise.

    Useful after large arrays were freed, as in loading weights. Does nothing on other systems.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def count_parameters(network: nn.Module) -> int:
    """Return the number of trainable parameters of a network."""
    return sum(tensor.numel() for tensor in network.parameters() if tensor.requires_grad)
