"""Read .npy and .npz files without trusting them, and align arrays in memory.

A header is compared with the size of the file before memory is allocated. Pickled objects are never
loaded, archives are never read beyond their declared size, and only regular files are opened (no
pipes, no devices).
"""

from __future__ import annotations

import lzma
import math
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cefito.errors import CefitoError, DataError

__all__ = [
    "ALIGNMENT",
    "MAX_ARRAY_BYTES",
    "aligned",
    "check_regular",
    "load_npy",
    "load_npz",
    "row_numbers",
]

MAX_ARRAY_BYTES = 64 << 30
"""Largest array that is read."""
ALIGNMENT = 64
"""Bytes to a multiple of which arrays are placed in memory: a cache line, as in PyTorch.

On some processors the last bit of a matrix product depends on where its operands begin (MKL on
AVX2: on multiples of 16 bytes). Arrays that are read or given begin anywhere.
"""
_MAGIC = b"\x93NUMPY"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_BLOCK = 1 << 20
_BROKEN = (
    *(ValueError, EOFError, OSError, TypeError, OverflowError, SyntaxError, RuntimeError),
    *(NotImplementedError, MemoryError, RecursionError, zipfile.BadZipFile),
    *(zlib.error, lzma.LZMAError),
)
"""Errors of NumPy and zipfile on damaged and hostile files."""


Scalar = TypeVar("Scalar", bound=np.generic)


def row_numbers(rows: Any) -> NDArray[np.int64]:
    """Return the numbers of rows as an array; refuse other numbers and masks (DataError)."""
    numbers = np.asarray(rows)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise DataError(f"rows of type {numbers.dtype}: expected whole numbers, counted from 0.")
    return numbers.astype(np.int64)


def aligned(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return an array in C order that begins at a multiple of `ALIGNMENT` bytes.

    The array itself if it does already, otherwise a copy. Everything that is computed from the
    result is then the same bit for bit, wherever the array was in memory before.
    """
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    buffer = np.empty(array.nbytes + ALIGNMENT, dtype=np.uint8)
    first = -buffer.ctypes.data % ALIGNMENT
    copy = buffer[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _Pickled(Exception):  # noqa: N818
    """An array of objects."""


def check_regular(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse all but regular files (a pipe waits, a device may not end); `remedy` ends messages."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise error(f"{path}: no such file. {remedy}".rstrip()) from problem
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"{path}: cannot be read ({reason}). {remedy}".rstrip()) from problem
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        raise error(f"{path}: cannot be read (it is {kind}, not a file). {remedy}".rstrip())


def load_npy(path: Path, remedy: str = "") -> NDArray[Any]:
    """Load an array from a .npy file; a pickled one is refused."""
    check_regular(path, remedy)
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
            if start[:4] in _ZIPS:
                raise DataError(
                    f"{path}: holds several arrays; expected one. Save it again with numpy.save."
                )
            if start and start != _MAGIC[: len(start)]:
                raise _Pickled  # or another kind of file
            file.seek(0)
            return _array(file, path.stat().st_size)
    except _Pickled as problem:
        raise DataError(f"{path}: {_PICKLED}") from problem
    except _BROKEN as problem:
        raise DataError(f"{path}: {_broken(problem)}") from problem


def load_npz(path: Path, names: tuple[str, ...], remedy: str = "") -> dict[str, NDArray[Any]]:
    """Load the named members of a .npz archive; others are never opened."""
    check_regular(path, remedy)
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
            if start == _MAGIC:
                raise DataError(
                    f"{path}: is one array; expected an archive. Save it again with numpy.savez."
                )
            if start and start[:4] not in _ZIPS:
                raise _Pickled
            file.seek(0)
            with zipfile.ZipFile(file) as archive:
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                missing = [name for name in names if name not in members]
                if missing:
                    raise DataError(
                        f"{path}: has no member '{missing[0]}' (found: "
                        f"{', '.join(members) or 'none'}). {remedy}".rstrip()
                    )
                return {name: _member(path, archive, members[name]) for name in names}
    except _Pickled as problem:
        raise DataError(f"{path}: {_PICKLED}") from problem
    except _BROKEN as problem:
        raise DataError(f"{path}: {_broken(problem)}") from problem


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Read a member; unpack at most the bytes that its header declares."""
    if info.flag_bits & 1:
        raise DataError(f"{path}: '{info.filename}' is encrypted. Save it without a password.")
    with archive.open(info) as stream:
        return _array(stream, info.file_size)


def _array(stream: IO[bytes], size: int) -> NDArray[Any]:
    """Read the array of a stream of `size` bytes to its end: zipfile then checks its CRC."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, column_major, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, column_major, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"format version {version[0]}.{version[1]}")
    if dtype.hasobject:
        raise _Pickled
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise ValueError(f"its header announces the shape {shape}")
    claimed = math.prod(shape) * dtype.itemsize
    there = size - stream.tell()
    if claimed > MAX_ARRAY_BYTES:
        raise ValueError(
            f"its header announces {claimed / 2**30:.3g} GiB; at most {MAX_ARRAY_BYTES >> 30} GiB "
            "are read"
        )
    if claimed != there:
        raise ValueError(f"its header announces {claimed:,} bytes, there are {there:,}")
    data = bytearray()  # grows with the bytes that arrive
    while len(data) < claimed:
        block = stream.read(min(_BLOCK, claimed - len(data)))
        if not block:
            raise EOFError(f"it ends after {len(data):,} of {claimed:,} bytes")
        data += block
    if stream.read(1):
        raise ValueError("there is more than its header says")
    array = np.frombuffer(data, dtype=dtype) if claimed else np.empty(0, dtype=dtype)
    return array.reshape(shape, order="F" if column_major else "C")


_PICKLED = (
    "holds pickled objects, which are never loaded, or is not a NumPy file. Save it again as "
    "plain floating-point arrays."
)


def _broken(problem: BaseException) -> str:
    reason = " ".join(str(problem).split())[:200] or type(problem).__name__
    return f"is truncated or not a NumPy file ({reason}). Make or copy it again."
