"""Check arrays and tensors, and keep them in safetensors files; aligned in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, cast

from cefito.errors import CefitoError, DataError, RunError, explained
from cefito.files import check_binary, write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

ALIGNMENT = 64
"""Bytes to a multiple of which arrays are placed in memory: a cache line, as in PyTorch.

On some processors the last bit of a matrix product depends on where its operands begin (MKL on
AVX2: on multiples of 16 bytes). Arrays that are read or given begin anywhere.
"""
_AT_ONCE = 1 << 18  # numbers that are checked at once, which bounds the memory
Scalar = TypeVar("Scalar", bound="np.generic")


def check_array(
    array: NDArray[Any],
    *,
    shape: tuple[int | None, ...],
    place: str,
    rows: str = "row",
    because: str = "",
    where: Callable[[int], str] = lambda _: "",
) -> NDArray[Any]:
    """Check the shape of a floating-point array (None for any size) and that it is finite.

    Args:
        array: Checked and returned.
        shape: Expected sizes.
        place: Begins messages.
        rows: Word for a row of the array, in messages.
        because: Reason of the shape and what to do, in messages.
        where: Says what the row of a number is of.
    """
    import numpy as np

    fits = array.ndim == len(shape) and all(
        want == got or (want is None and got) for want, got in zip(shape, array.shape, strict=True)
    )
    if array.dtype.kind != "f":
        expected = "expected floating-point numbers, as astype('float32') makes them"
        raise DataError(f"{place}: holds values of type {array.dtype}; {expected}.")
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        expected = f"expected [{wanted}]{because and f': {because}'}"
        raise DataError(f"{place}: has shape {list(array.shape)}; {expected}.")
    wrong = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(wrong):
        holding = f"{rows} holds" if len(wrong) == 1 else f"{rows}s hold"
        fault = f"{len(wrong)} {holding} NaN or infinity"
        first = f"the first is {rows} {wrong[0]}{where(int(wrong[0]))}"
        raise DataError(f"{place}: {fault}, {first}. Make these again or leave their videos out.")
    return array


def write_tensors(
    path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors (NumPy or torch) as one safetensors file, atomically.

    Args:
        path: File to be made or replaced.
        tensors: Tensors by name.
        metadata: Texts by name, kept beside them.
    """
    import numpy as np

    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        import safetensors.numpy

        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        data = safetensors.numpy.save(contiguous, metadata=metadata)
    else:
        import safetensors.torch

        copies = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
        }
        data = safetensors.torch.save(copies, metadata=metadata)
    write_bytes(path, data)


def aligned(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a writable array in C order that begins at a multiple of `ALIGNMENT` bytes.

    The array itself if it does already, otherwise a copy. Everything that is computed from the
    result is then the same bit for bit, wherever the array was in memory before.
    """
    fits = array.flags.c_contiguous and array.flags.writeable
    if fits and array.ctypes.data % ALIGNMENT == 0:
        return array
    import numpy as np

    buffer = np.empty(array.nbytes + ALIGNMENT, dtype=np.uint8)
    first = -buffer.ctypes.data % ALIGNMENT
    copy = buffer[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def load_tensors(
    path: Path, framework: str, remedy: str, error: type[CefitoError] = DataError
) -> tuple[dict[str, Any], dict[str, str]]:
    """Load tensors, `aligned`, and metadata of a safetensors file; framework: "np" or "pt".

    Args:
        path: File.
        framework: "np" for NumPy arrays, "pt" for torch tensors.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    from safetensors import SafetensorError, safe_open

    check_binary(path, remedy, error)
    # TypeError: NumPy alone has no bfloat16
    kinds = SafetensorError, OSError, TypeError, ValueError
    with (
        explained(path, "truncated or not a safetensors file", remedy, *kinds, error=error),
        safe_open(path, framework=framework) as archive,
    ):
        tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        for name, tensor in tensors.items():  # copies: tensors of a file are the file, mapped
            if framework == "np" and tensor.dtype.kind == "V":  # bfloat16 of the package ml_dtypes
                raise TypeError(f"tensor '{name}' is {tensor.dtype}")
            tensors[name] = aligned(tensor) if framework == "np" else tensor.clone()
        return tensors, archive.metadata() or {}


def load_weights(
    module: nn.Module, tensors: Mapping[str, Tensor], place: str, *, copy: bool = True
) -> None:
    """Load finite weights of a module's names, shapes and types (RunError).

    Args:
        module: Module to be filled.
        tensors: Tensors by name, of the shapes and types of the module's.
        place: Begins messages.
        copy: Copy the numbers; otherwise the module takes the tensors themselves.
    """
    expected = module.state_dict()
    wrong = sorted(set(expected) ^ set(tensors))
    if wrong:
        where = "is missing" if wrong[0] in expected else "is unknown"
        raise RunError(
            f"{place}: tensor '{wrong[0]}' {where}; the file does not belong to this configuration."
        )
    for name, tensor in tensors.items():
        wanted = expected[name]
        if (tensor.shape, tensor.dtype) != (wanted.shape, wanted.dtype):
            raise RunError(
                f"{place}: tensor '{name}' has shape {list(tensor.shape)} and type {tensor.dtype}; "
                f"expected {list(wanted.shape)} and {wanted.dtype}."
            )
        if not all(bool(block.isfinite().all()) for block in tensor.flatten().split(_AT_ONCE)):
            bad = int((~tensor.isfinite()).sum())
            raise RunError(
                f"{place}: tensor '{name}' holds NaN or infinity ({bad} of {tensor.numel():,} "
                "numbers). Get the file again, or train again."
            )
    module.load_state_dict(dict(tensors), assign=not copy)


class Expected(NamedTuple):
    """Shape, kind and bounds of a tensor.

    A size of the shape may be a name, of sizes that are equal. As the upper bound, its numbers are
    below this size.
    """

    shape: tuple[int | str, ...]
    low: float
    high: float | str
    kind: str = "f"  # of NumPy's types: "f", "i" or "b"
    nan: bool = False  # whether it may hold NaN


def check_tensors(
    tensors: Mapping[str, NDArray[Any]], expected: Mapping[str, Expected], place: str
) -> None:
    """Refuse arrays other than those expected, out of bounds, or with NaN (RunError).

    Args:
        tensors: Arrays by name.
        expected: Shape, bounds, kind of type and whether NaN is allowed, by name.
        place: Begins messages.
    """
    for name in sorted({*tensors} ^ {*expected}):
        where = "is missing" if name in expected else "is unknown"
        raise RunError(f"{place}: tensor '{name}' {where}.")
    sizes: dict[int | str, int] = {}  # of names, by the first tensor that has each
    for name, (named_shape, low, highest, kind, nan) in expected.items():
        tensor = tensors[name]
        for size, actual in zip(named_shape, tensor.shape, strict=False):
            sizes.setdefault(size, actual if isinstance(size, str) else size)
        shape = [sizes.get(size, size) for size in named_shape]
        if ([*tensor.shape], tensor.dtype.kind) != (shape, kind):
            fault = f"has shape {list(tensor.shape)} and type {tensor.dtype}"
            raise RunError(f"{place}: tensor '{name}' {fault}; expected {shape}.")
        high = sizes[highest] - 1 if isinstance(highest, str) else highest
        if not ((tensor >= low) & (tensor <= high) | (nan & (tensor != tensor))).all():
            raise RunError(f"{place}: tensor '{name}' is not from {low:g} to {high:g} throughout.")


class Stored:
    """Base of dataclasses that are kept as arrays, one a field."""

    expected: ClassVar[Mapping[str, Expected]]
    """What `loaded` expects of each field."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields as arrays."""
        import numpy as np

        return {
            field.name: np.asarray(getattr(self, field.name)) for field in fields(cast("Any", self))
        }

    @classmethod
    def loaded(cls, arrays: Mapping[str, NDArray[Any]], place: str) -> Self:
        """Build from what `arrays` returned; RunError for others, `place` is their file."""
        check_tensors(arrays, cls.expected, place)
        return cls(**arrays)
