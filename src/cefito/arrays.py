"""Read .npy and .npz files without trusting them, align arrays in memory, and number their rows.

A header is compared with the size of the file before memory is allocated. Pickled objects are never
loaded, archives are never read beyond their declared size, and only regular files are opened (no
pipes, no devices). NumPy is imported when it is used: commands that need none are quick.
"""

from __future__ import annotations

import lzma
import math
import os
import pickle
import re
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from cefito.errors import CefitoError, DataError, explained, reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ARRAY_BYTES = 64 << 30
"""Largest array that is read."""
ALIGNMENT = 64
"""Bytes to a multiple of which arrays are placed in memory: a cache line, as in PyTorch.

On some processors the last bit of a matrix product depends on where its operands begin (MKL on
AVX2: on multiples of 16 bytes). Arrays that are read or given begin anywhere.
"""
_DAMAGED = "cannot be read as NumPy arrays"
_AGAIN = "Make it again as plain floating-point arrays."
_PICKLED = "it holds pickled objects, which are never loaded"
_MAGIC = b"\x93NUMPY"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_HTML = re.compile(rb"(?:<!--.{0,200}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.S | re.I)
_BLOCK = 1 << 20
_BROKEN = (
    *(ValueError, EOFError, OSError, TypeError, OverflowError, SyntaxError, RuntimeError),
    *(NotImplementedError, MemoryError, RecursionError, zipfile.BadZipFile),
    tokenize.TokenError,  # of numpy.lib.format, on headers
    *(zlib.error, lzma.LZMAError),
)
"""Errors of NumPy and zipfile on damaged and hostile files."""


Border = Literal["nearest", "last"]
"""Row repeated where an observation passes a border: the nearest, or the last one available."""
Scalar = TypeVar("Scalar", bound="np.generic")


def row_numbers(rows: Any) -> NDArray[np.int64]:
    """Return the numbers of rows as an array; refuse other numbers and masks (DataError)."""
    import numpy as np

    numbers = np.asarray(rows)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise DataError(f"rows of type {numbers.dtype}: expected whole numbers, counted from 0.")
    return numbers.astype(np.int64)


def observed_rows(
    times: Sequence[float], *, rows: int, seconds: int, border: Border = "nearest"
) -> NDArray[np.int64]:
    """Return the rows of the observation at each of S times in seconds, int64 [S, seconds].

    They are the rows, in [0, rows), of an odd number of seconds around the rounded time (halves to
    the even one). At second 0 of three, "nearest" repeats a row as 0, 0, 1 and "last" as 0, 1, 1.

    Args:
        times: S times in seconds.
        rows: Number of rows of the video, one a second.
        seconds: Odd number of rows of an observation.
        border: What stands for rows before the first and after the last.
    """
    import numpy as np

    centres = np.array([round(time) for time in times], dtype=np.int64).reshape(-1, 1)
    first, last = centres - seconds // 2, np.clip(centres + seconds // 2, 0, rows - 1)
    if border == "last":  # rows before the beginning are left out
        first = np.maximum(first, 0)
    around: NDArray[np.int64] = np.clip(first + np.arange(seconds), 0, last)
    return around


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


def check_regular(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse all but regular files (a pipe waits, a device may not end); `remedy` ends messages.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    try:
        mode = path.stat().st_mode
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        fault = "" if stat.S_ISREG(mode) else f"cannot be read (it is {kind}, not a file)"
    except (FileNotFoundError, NotADirectoryError):
        fault = "no such file"
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        fault = f"cannot be read ({reason(problem)})"
    if fault:
        raise error(f"{path}: {fault}. {remedy}".rstrip())


def check_binary(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse what `check_regular` refuses, and texts that stand where a file of numbers should.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    check_regular(path, remedy, error)
    with explained(path, "cannot be read", remedy, error=error), path.open("rb") as file:
        begin = file.read(512).removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"version https://git-lfs"):
        raise error(f"{path}: is a Git LFS pointer, not the file itself. Run git lfs pull there.")
    if _HTML.match(begin):
        fault = "is a page of HTML, such as a server sends in place of a file"
        raise error(f"{path}: {fault}. Open its address in a browser and save the file itself.")


def is_pickled(data: bytes) -> bool:
    """Return whether a file begins as a pickle does, or as a .npy file that holds one."""
    return data[:1] == b"\x80" or (data[:6] == _MAGIC and b"'|O'" in data[:256])


def load_npy(path: Path, remedy: str = "") -> NDArray[Any]:
    """Load an array from a .npy file; a pickled one is refused."""
    check_binary(path, remedy)
    with explained(path, _DAMAGED, _AGAIN, *_BROKEN), path.open("rb") as file:
        head = file.read(256)
        if head[:4] in _ZIPS:
            raise DataError(f"{path}: holds several arrays; expected one. Save it by numpy.save.")
        if is_pickled(head):
            file.seek(-1, os.SEEK_END)
            whole = file.read() == pickle.STOP
            raise ValueError(_PICKLED if whole else "it is a truncated pickle")
        file.seek(0)
        return _array(file, path.stat().st_size)


def load_npz(path: Path, names: tuple[str, ...], remedy: str = "") -> dict[str, NDArray[Any]]:
    """Load the named members of a .npz archive; others are never opened.

    Args:
        path: Archive.
        names: Names of the members, without `.npy`.
        remedy: End of messages: what the user can do.
    """
    check_binary(path, remedy)
    with explained(path, _DAMAGED, _AGAIN, *_BROKEN), path.open("rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            raise DataError(f"{path}: is one array; expected several. Save them by numpy.savez.")
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = {}
            for name in names:
                if name not in members:
                    listing = ", ".join(members) or "none"
                    raise DataError(
                        f"{path}: has no member '{name}' (found: {listing}). {remedy}".rstrip()
                    )
                with archive.open(members[name]) as stream:  # at most the declared bytes
                    arrays[name] = _array(stream, members[name].file_size)
            return arrays


def _array(stream: IO[bytes], size: int) -> NDArray[Any]:
    """Read the array of a stream of `size` bytes to its end: zipfile then checks its CRC."""
    import numpy as np

    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, column_major, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, column_major, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"format version {version[0]}.{version[1]}")
    if dtype.hasobject:
        raise ValueError(_PICKLED)
    claimed, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if claimed != there or min(shape, default=0) < 0 or claimed > MAX_ARRAY_BYTES:
        raise ValueError(f"its header announces {shape}: {claimed:,} bytes; there are {there:,}")
    data = bytearray()  # grows with the bytes that arrive
    while block := stream.read(_BLOCK):
        data += block
    array = np.frombuffer(data, dtype=dtype) if claimed else np.empty(0, dtype=dtype)
    return array.reshape(shape, order="F" if column_major else "C")
