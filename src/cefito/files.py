"""Reading and writing files safely: nothing pickled is loaded, nothing half-written is left.

Every writer writes beside its target and renames into place, so a reader sees the old file or the
new one, and a full disk leaves the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import CefitoError, DataError, RunError

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


def write_atomic(
    path: Path, fill: Callable[[Path], None], error: type[CefitoError] = RunError
) -> None:
    """Write `path` by calling `fill` on a temporary path in the same folder.

    Then rename it into place.

    Args:
        path: Target; its folder must exist.
        fill: Writes the whole content to the path it is given.
        error: Raised when the file cannot be written (full disk, no permission); the old file stays
            as it was.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        fill(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as problem:
        raise error(
            f"{path}: could not be written ({problem.strerror or problem}); what stood there "
            "before is "
            f"untouched. Free some disk space or choose another folder."
        ) from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""

    def fill(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_atomic(path, fill)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str, error: type[CefitoError] = DataError) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        remedy: What to do about it, the last sentence of the error message.
        error: Type of the error raised when the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise error(f"{path}: no such file. {remedy}") from problem
    except ValueError as problem:  # malformed JSON, not UTF-8, a number of thousands of digits
        raise error(f"{path}: not valid JSON ({problem}). {remedy}") from problem
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}). {remedy}") from problem


def load_npy(path: Path, remedy: str = "") -> NDArray[Any]:
    """Load an array from a .npy file; a pickled one is refused.

    Args:
        path: The file.
        remedy: What to do about a missing file, the last sentence of the error message.

    Raises:
        DataError: The file is missing, truncated, or holds pickled objects.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. {remedy}".rstrip()) from problem
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as problem:
        raise DataError(f"{path}: {_array_problem(problem)}") from problem
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(
            f"{path}: holds several arrays; expected one. Save it again with numpy.save."
        )
    return array


def load_npz(path: Path, names: tuple[str, ...], remedy: str = "") -> dict[str, NDArray[Any]]:
    """Load the named members of a .npz archive; others are never opened.

    Args:
        path: The file.
        names: Members to load.
        remedy: What to do about a missing file or member, the last sentence of the error message.

    Raises:
        DataError: The file is missing or truncated, a member is missing or pickled.
    """
    try:
        with path.open("rb") as file:  # numpy leaves the file open where it is truncated
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError(
                    f"{path}: is one array; expected an archive. Save it again with numpy.savez."
                )
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise DataError(
                    f"{path}: has no member '{missing[0]}' (found: "
                    f"{', '.join(archive.files) or 'none'}). "
                    f"{remedy}".rstrip()
                )
            return {name: archive[name] for name in names}
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. {remedy}".rstrip()) from problem
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as problem:
        raise DataError(f"{path}: {_array_problem(problem)}") from problem


def _array_problem(problem: Exception) -> str:
    if "pickle" in str(problem).lower():
        return (
            "holds pickled objects, which are never loaded, or is no NumPy file at all. Save it "
            "again as plain "
            "floating-point arrays."
        )
    return f"is truncated or not a NumPy file ({problem}). Make or copy it again."


def check_array(
    array: NDArray[Any], *, shape: tuple[int | None, ...], place: str, rows: str = "row"
) -> NDArray[Any]:
    """Check the shape of a floating-point array and that its values are finite.

    Args:
        array: Anything that NumPy loaded.
        shape: Expected shape; None stands for any size.
        place: Where it stands, for the message.
        rows: What one row is called in the message.

    Raises:
        DataError: Wrong kind of numbers, wrong shape, NaN or infinity (with the first row that
            holds one).
    """
    if array.dtype.kind != "f":
        raise DataError(
            f"{place}: holds values of type {array.dtype}; expected floating-point numbers. "
            "Convert them, "
            f"for example with astype('float32')."
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
            f"{first} "
            f"(counted from 0). Extract these again or leave their videos out."
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
    """Load a safetensors file and its metadata.

    Args:
        path: The file.
        framework: "np" or "pt".
        remedy: What to do about a missing or damaged file.
        error: Type of the error raised then.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework=framework) as archive:
            names = list(archive.keys())
            tensors = {name: archive.get_tensor(name) for name in names}
            return tensors, archive.metadata() or {}
    except FileNotFoundError as problem:
        raise error(f"{path}: no such file. {remedy}") from problem
    except (
        SafetensorError,
        OSError,
        TypeError,
    ) as problem:  # TypeError: bfloat16, which NumPy does not know
        raise error(
            f"{path}: truncated or not a safetensors file ({problem}). {remedy}"
        ) from problem


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a new folder and move it to `target` only when all went well.

    On an error nothing is left behind.

    Raises:
        DataError: `target` exists and is not empty, or cannot be written.
    """
    import shutil

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: exists already. Choose another folder or remove it first.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as problem:
        raise DataError(
            f"{target}: cannot be made ({problem.strerror}). Choose another folder."
        ) from problem
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(target)
    except (
        OSError,
        RunError,
    ) as problem:  # RunError: from a writer of this module, about a file in `temporary`
        cause = problem.__cause__ if isinstance(problem, RunError) else problem
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise DataError(
            f"{target}: could not be written ({reason or problem}); nothing was left there. Free "
            "some disk "
            f"space or choose another folder."
        ) from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
