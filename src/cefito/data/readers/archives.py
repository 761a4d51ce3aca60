"""Feature files of one video: a NumPy array, or an archive that holds one.

They are read without trusting what they say.

The published S3D features are `.npz` archives although their names end in `.npy`; the array is the
member `frames_features.npy`, and other members may be pickled. Only that member is opened, its
header is checked before any row is read, and only the rows that are asked for stay in memory.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cefito.errors import DataError

__all__ = [
    "MAX_BYTES",
    "MAX_ROWS",
    "MAX_WIDTH",
    "MEMBER",
    "FeatureArray",
    "FeatureError",
    "open_features",
]

MEMBER = "frames_features.npy"
MAX_BYTES = 1 << 30
"""Largest array that is read: 1 GiB, six days of 512 single-precision numbers a second."""
MAX_ROWS = 1 << 24
MAX_WIDTH = 1 << 16
"""Longest and widest array that is read, so that a row or a column always fits in memory."""
_BLOCK = 1 << 20
_Result = TypeVar("_Result")


class FeatureError(DataError):
    """A feature file that cannot be used.

    `reason` is the short name under which such files are counted.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class FeatureArray:
    """An opened array of features, one row a second.

    Its header is known and checked, its rows are not read yet.

    Attributes:
        path: The file.
        rows: Number of seconds, N.
        width: Numbers a second, D.
    """

    path: Path
    rows: int
    width: int
    _dtype: np.dtype[Any]
    _column_major: bool
    _stream: IO[bytes]

    def read(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read some rows.

        The whole file is passed through once, so that damage anywhere in it is found.

        Args:
            wanted: Rows, ascending and distinct, each in [0, N), int64 [R].

        Returns:
            float32 [R, D].

        Raises:
            FeatureError: Truncated or damaged, or a wanted row holds NaN or infinity (with the
                second).
        """
        found = self._by_blocks(wanted)
        self._finish()
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            second = int(wanted[int(np.flatnonzero(~finite)[0])])
            raise FeatureError(
                "NaN or infinity",
                f"{self.path}: second {second} (row {second}, counted from 0) holds NaN, infinity "
                "or a number too large for float32. Extract the video again.",
            )
        return found

    def _by_blocks(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.empty((len(wanted), self.width), dtype=np.float32)
        lines, length = (self.width, self.rows) if self._column_major else (self.rows, self.width)
        step = max(1, _BLOCK // (length * self._dtype.itemsize))
        for first in range(0, lines, step):
            last = min(first + step, lines)
            block = np.frombuffer(
                self._exactly((last - first) * length * self._dtype.itemsize), self._dtype
            )
            block = block.reshape(last - first, length)
            with np.errstate(over="ignore"):
                if self._column_major:
                    found[:, first:last] = block[:, wanted].T
                else:
                    here = slice(*np.searchsorted(wanted, (first, last)))
                    found[here] = block[wanted[here] - first]
        return found

    def _exactly(self, size: int) -> bytes:
        data = _guarded(self.path, lambda: self._stream.read(size))
        if len(data) != size:
            raise _truncated(self.path, "the array ends before its last row")
        return data

    def _finish(self) -> None:
        # at the end an archive's checksum is compared
        if _guarded(self.path, lambda: self._stream.read(1)):
            raise _truncated(self.path, "there is more than its header says")


@contextmanager
def open_features(path: Path) -> Iterator[FeatureArray]:
    """Open the feature file of one video: `.npy`, `.npz`, or an archive named `.npy`.

    Of an archive the member `frames_features.npy` is read, or the only array in it. Nothing is
    extracted or unpickled.

    Args:
        path: The file; what it is, is seen from its content.

    Yields:
        The array, [N, D] floating point.

    Raises:
        FeatureError: Unreadable, truncated, pickled, larger than `MAX_BYTES`, or not [seconds, D].
    """
    try:
        strange = path.exists() and not path.is_file()
        file = None if strange else path.open("rb")
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise FeatureError("unreadable", f"{path}: cannot be read ({reason}).") from problem
    if file is None:
        raise FeatureError(
            "unreadable", f"{path}: is no file, but a folder, a pipe or a device. Remove it."
        )
    with file:
        size = path.stat().st_size
        magic = file.read(6)
        file.seek(0)
        if magic == b"\x93NUMPY":
            yield _array(path, file, size)
        elif magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            archive = _guarded(path, lambda: zipfile.ZipFile(file))
            with archive:
                member = _member(path, archive)
                with _guarded(path, lambda: archive.open(member)) as stream:
                    yield _array(path, stream, member.file_size)
        else:
            raise FeatureError(
                "unreadable",
                f"{path}: neither a NumPy array nor an archive of arrays. Extract or copy it "
                "again.",
            )


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    named = [info for info in arrays if info.filename == MEMBER] or arrays
    if len(named) != 1:
        names = ", ".join(repr(info.filename) for info in arrays[:4]) or "none"
        raise FeatureError(
            "unreadable",
            f"{path}: has no member '{MEMBER}', or several, among its arrays ({names}). Save the "
            "features under the name frames_features.",
        )
    if named[0].flag_bits & 1:
        raise FeatureError(
            "unreadable", f"{path}: '{named[0].filename}' is encrypted. Save it without a password."
        )
    if named[0].file_size > MAX_BYTES:
        raise _too_large(path, named[0].file_size)
    return named[0]


def _array(path: Path, stream: IO[bytes], size: int) -> FeatureArray:
    shape, column_major, dtype = _guarded(path, lambda: _header(stream))
    if dtype.hasobject:
        raise FeatureError(
            "pickled",
            f"{path}: the features are pickled objects, which are never loaded. Save them again as "
            "a plain floating-point array.",
        )
    if dtype.kind != "f" or len(shape) != 2 or 0 in shape:
        raise FeatureError(
            "wrong shape",
            f"{path}: holds {dtype} {list(shape)}; expected floating-point numbers [seconds, D]. "
            "Save one row a second.",
        )
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > MAX_BYTES or shape[0] > MAX_ROWS or shape[1] > MAX_WIDTH:
        raise _too_large(path, claimed, f", {shape[0]} rows of {shape[1]} numbers")
    if claimed != size - stream.tell():
        raise _truncated(
            path, f"its header announces {claimed} bytes, there are {size - stream.tell()}"
        )
    return FeatureArray(
        path=path,
        rows=shape[0],
        width=shape[1],
        _dtype=dtype,
        _column_major=column_major,
        _stream=stream,
    )


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"format version {version[0]}.{version[1]}")


def _guarded(path: Path, read: Callable[[], _Result]) -> _Result:
    """What `read` gives; what damaged or hostile files make it raise becomes a `FeatureError`."""
    try:
        return read()
    except (EOFError, zlib.error, zipfile.BadZipFile, lzma.LZMAError) as problem:
        raise _truncated(path, str(problem)) from problem
    except (
        *(ValueError, OSError, NotImplementedError, RuntimeError, SyntaxError),
        *(TypeError, OverflowError, MemoryError),
    ) as problem:
        raise FeatureError(
            "unreadable", f"{path}: not a readable array ({problem}). Extract or copy it again."
        ) from problem


def _truncated(path: Path, detail: str) -> FeatureError:
    return FeatureError(
        "truncated", f"{path}: is truncated or damaged ({detail}). Extract or copy it again."
    )


def _too_large(path: Path, size: int, shape: str = "") -> FeatureError:
    return FeatureError(
        "too large",
        f"{path}: claims to hold {size / 2**30:,.1f} GiB{shape}; at most {MAX_BYTES >> 30} GiB, "
        f"{MAX_ROWS} rows of {MAX_WIDTH} numbers are read. Extract it again, one row a second.",
    )
