"""Read and write files safely: load no pickles, leave no half-written file.

Every writer writes beside its target and renames into place, so a reader sees the old file or the
new one, and a full disk keeps the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import ALIGNMENT, aligned, check_regular, load_npy, load_npz
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.locks import made_folders, temporary_beside

__all__ = [
    "check_array",
    "load_npy",
    "load_npz",
    "load_tensors",
    "new_folder",
    "read_json",
    "sha256",
    "write_bytes",
    "write_json",
    "write_tensors",
    "write_text",
]


def check_target(path: Path, endings: Sequence[str], setting: str) -> None:
    """Check that a file can be written, before any work."""
    problem = ""
    if path.suffix not in endings:
        problem = f"expected a file that ends in {' or '.join(endings)}"
    elif not path.resolve().parent.is_dir():
        problem = "the folder does not exist"
    elif path.is_dir():
        problem = "is a folder. Choose another name"
    if problem:
        raise ConfigError(f"{path}: {problem}.", setting=setting)


def write_atomic(
    path: Path, fill: Callable[[Path], object], error: type[CefitoError] = RunError
) -> None:
    """Call `fill` on a temporary path in the same folder, then rename that to `path`."""
    try:
        with temporary_beside(path) as temporary:
            fill(temporary)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise error(
            f"{path}: could not be written ({reason}); its previous content is kept. Free some "
            "disk space or choose another folder."
        ) from problem


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(data))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str, error: type[CefitoError] = DataError) -> Any:
    """Read a JSON file; `remedy` is the last sentence of the error: the user's next step."""
    check_regular(path, remedy, error)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as problem:
        raise error(f"{path}: not valid JSON (nested too deeply). {remedy}") from problem
    except ValueError as problem:  # malformed JSON, not UTF-8, a number of thousands of digits
        raise error(f"{path}: not valid JSON ({problem}). {remedy}") from problem
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}). {remedy}") from problem


def check_array(
    array: NDArray[Any], *, shape: tuple[int | None, ...], place: str, rows: str = "row"
) -> NDArray[Any]:
    """Check the shape of a floating-point array (None for any size) and that it is finite."""
    if array.dtype.kind != "f":
        raise DataError(
            f"{place}: holds values of type {array.dtype}; expected floating-point numbers. "
            "Convert them, for example with astype('float32')."
        )
    if array.ndim != len(shape) or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
        raise DataError(
            f"{place}: has shape {list(array.shape)}; expected {wanted}, one {rows} a line."
        )
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        first = int(np.flatnonzero(~finite)[0])
        raise DataError(
            f"{place}: {int((~finite).sum())} {rows}s hold NaN or infinity, the first is {rows} "
            f"{first} (counted from 0). Extract these again or leave their videos out."
        )
    return array


def write_tensors(
    path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors (NumPy or torch) as one safetensors file, atomically."""
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


def load_tensors(
    path: Path, framework: str, remedy: str, error: type[CefitoError] = DataError
) -> tuple[dict[str, Any], dict[str, str]]:
    """Load tensors, `aligned`, and metadata of a safetensors file; framework: "np" or "pt"."""
    from safetensors import SafetensorError, safe_open

    check_regular(path, remedy, error)
    try:
        with safe_open(path, framework=framework) as archive:
            names = list(archive.keys())
            tensors = {name: _aligned(archive.get_tensor(name)) for name in names}
            return tensors, archive.metadata() or {}
    except (SafetensorError, OSError, TypeError, ValueError) as problem:
        # TypeError: NumPy has no bfloat16
        raise error(
            f"{path}: truncated or not a safetensors file ({problem}). {remedy}"
        ) from problem


def _aligned(tensor: Any) -> Any:
    """A tensor of a file, aligned: PyTorch's own allocations are."""
    if isinstance(tensor, np.ndarray):
        return aligned(tensor)
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder and rename it to `target`; an error leaves nothing behind."""
    taken = target.exists() or target.is_symlink()  # exists() is False for a dangling link
    if taken and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: exists already. Choose another folder or remove it first.")
    with ExitStack() as stack:
        try:
            stack.enter_context(made_folders(target.parent))
            temporary = stack.enter_context(temporary_beside(target, folder=True))
        except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
            raise DataError(
                f"{target}: cannot be made ({getattr(problem, 'strerror', None) or problem}). "
                "Choose another folder."
            ) from problem
        try:
            yield temporary
            temporary.replace(target)
        except (
            OSError,
            RunError,
        ) as problem:  # RunError: `write_atomic` failed on a file in `temporary`
            cause = problem.__cause__ if isinstance(problem, RunError) else problem
            reason = cause.strerror if isinstance(cause, OSError) else None
            raise DataError(
                f"{target}: could not be written ({reason or problem}); nothing was left there. "
                "Free some disk space or choose another folder."
            ) from problem
