"""Read arrays of NumPy and PyTorch from files without trusting them, and number their rows.

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
import threading
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from cefito.errors import DataError, RunError, explained
from cefito.files import check_binary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ARRAY_BYTES = 64 << 30
"""Largest array that is read."""
_DAMAGED = "cannot be read as NumPy arrays"
_AGAIN = "Make it again as plain floating-point arrays."
_PICKLED = "it holds pickled objects, which are never loaded"
_MAGIC = b"\x93NUMPY"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_BLOCK = 1 << 20
_BROKEN = (
    *(ValueError, EOFError, OSError, TypeError, OverflowError, SyntaxError, RuntimeError),
    *(NotImplementedError, MemoryError, RecursionError, zipfile.BadZipFile),
    tokenize.TokenError,  # of numpy.lib.format, on headers
    *(zlib.error, lzma.LZMAError),
)
"""Errors of NumPy and zipfile on damaged and hostile files."""
_HEADER = threading.Lock()  # two threads that parse headers at once fail before Python 3.11.8

Border = Literal["nearest", "last"]
"""Row repeated where an observation passes a border: the nearest, or the last one available."""


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
    with _HEADER:
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


def load_torch(path: Path, remedy: str) -> Any:
    """Load what torch.save wrote, on the CPU: tensors and plain values, nothing else (RunError).

    Files of PyTorch before 1.6, which are no zip archives, are read too.
    """
    import torch

    check_binary(path, remedy, RunError)
    other = f"{path}: is truncated or not a checkpoint as torch.save writes it. {remedy}"
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                stored = sum(member.file_size for member in archive.infolist())
            if stored > path.stat().st_size:  # torch.save does not compress
                raise RunError(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TorchScript archives, which are refused
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        named = re.search(r"GLOBAL ([\w.]+)", str(problem))
        if named is None:
            raise RunError(other) from problem
        fault = f"holds pickled objects other than tensors and plain values ({named[1]})"
        never = "which are never loaded. Save its tensors alone."
        raise RunError(f"{path}: {fault}, {never} {remedy}") from problem
    except RunError:
        raise
    except Exception as problem:  # a damaged file may break the reader in any way
        raise RunError(other) from problem
