"""In which precision networks compute: float32, or bfloat16 where the processor multiplies it.

In trainings products of matrices are what is taken in bfloat16; weights, losses, distances and the
optimiser stay in float32. Searches that screen look through sequences in bfloat16 and decide in
float32.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = [
    "Capability",
    "Precision",
    "Resolved",
    "capability",
    "determining",
    "resolve",
]

Precision = Literal["auto", "float32", "bfloat16"]
Resolved = Literal["float32", "bfloat16"]
Capability = Literal["CUDA", "AMX", "AVX512-BF16", "none"]

_PROCESSOR = Path("/proc/cpuinfo")
_KINDS: tuple[tuple[Capability, str, str], ...] = (
    ("AMX", "_is_amx_tile_supported", "amx_bf16"),
    ("AVX512-BF16", "_is_avx512_bf16_supported", "avx512_bf16"),
)  # the quicker first: what PyTorch asks, and the flag that Linux shows


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


@cache
def _processor() -> Capability:
    """PyTorch is asked; where this version cannot tell, what Linux says of the processor."""
    import torch

    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "none"
    flags: set[str] | None = None
    for kind, question, flag in _KINDS:
        ask = getattr(torch.cpu, question, None)
        if ask is not None:
            found = bool(ask())
        else:
            flags = _flags() if flags is None else flags
            found = flag in flags
        if found:
            return kind
    return "none"


def _flags() -> set[str]:
    """Flags of the first processor; none where the system does not show them."""
    try:
        lines = _PROCESSOR.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    line = next((line for line in lines if line.startswith("flags")), "")
    return set(line.partition(":")[2].split())


def determining(settings: Any, *values: Precision) -> Any:
    """Settings for JSON without how trainings and searches compute, however deep that stands.

    That is their precisions, whether activations are computed again, and whether a search screens.
    """
    if isinstance(settings, Mapping):
        kept = {name: determining(value, *values) for name, value in settings.items()}
        if _of_search(settings):
            del kept["screening"]
        if _of_training(settings):
            kept.pop("recompute", None)
            if not values or settings["precision"] in values:
                del kept["precision"]
        return kept
    if isinstance(settings, list | tuple):
        return [determining(part, *values) for part in settings]
    return settings


def _of_training(section: Mapping[str, Any]) -> bool:
    return "optimiser" in section and "precision" in section


def _of_search(section: Mapping[str, Any]) -> bool:
    return "screening" in section and "method" in section
