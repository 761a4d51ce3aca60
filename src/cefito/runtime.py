"""Devices, seeds and streams of random draws."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum, unique
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from cefito.errors import ConfigError, RunError

if TYPE_CHECKING:
    import torch

__all__ = [
    "SimulationStream",
    "Stream",
    "check_seed",
    "derived_seed",
    "generator_for",
    "named_stream",
    "pick_device",
    "return_memory",
]


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
        raise ConfigError(
            f"seed {seed}: expected a whole number from 0 to 2**63 - 1.", setting="seed"
        )


def pick_device(name: str = "auto", *, float64: bool = True) -> torch.device:
    """Return a device by its name; "auto" takes CUDA if available, else the CPU.

    `float64` says whether numbers of 64 bits are needed (not in encoders), which MPS lacks.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise RunError(
            f"unknown device '{name}'; expected auto, cpu, cuda or mps.", setting="device"
        ) from problem
    if device.type not in _KINDS:
        raise RunError(f"device '{name}': nothing is computed there. Use 'cpu'.", setting="device")
    missing = (device.type == "cuda" and not torch.cuda.is_available()) or (
        device.type == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise RunError(
            f"device '{device.type}': PyTorch sees no such GPU here. Use 'cpu'.",
            setting="device",
        )
    if device.type == "mps" and float64:
        raise RunError(
            "device 'mps' has no numbers of 64 bits, which training and planning need; it serves "
            "cefito extract and cefito embed. Use 'cpu' here.",
            setting="device",
        )
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
