"""Feature files of one video: a NumPy array, or an archive that holds one.

The published S3D features are `.npz` archives although their names end in `.npy`; the array is the
member `frames_features.npy`, and other members may be pickled. Only that member is opened, and
pickled objects are never loaded.
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

from cefito.arrays import check_regular
from cefito.errors import DataError

__all__ = ["FeatureArray", "FeatureError", "open_features"]

_MEMBER = "frames_features.npy"
_Result = TypeVar("_Result")


class FeatureError(DataError):
    """A feature file that cannot be used; `reason` is the short name under which it is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class FeatureArray:
    """An opened array of features, one row a second; its header is checked, its rows are not read.

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

        Args:
            wanted: Ascending and distinct rows in [0, N), int64 [R].

        Returns:
            float32 [R, D].

        Raises:
            FeatureError: The file is damaged, or a wanted row holds NaN or infinity.
        """
        found = _guarded(self.path, self._read)[wanted]
        with np.errstate(over="ignore"):
            found = found.astype(np.float32)
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            second = int(wanted[int(np.argmin(finite))])
            raise FeatureError(
                "NaN or infinity",
                f"{self.path}: second {second} (row {second}, counted from 0) holds NaN, infinity "
                "or a number too large for float32. Extract the features of this video again.",
            )
        return found

    def _read(self) -> NDArray[Any]:
        data = self._stream.read()  # at the end, an archive compares its checksum
        shape = (self.width, self.rows) if self._column_major else (self.rows, self.width)
        values = np.frombuffer(data, self._dtype).reshape(shape)
        return values.T if self._column_major else values


@contextmanager
def open_features(path: Path) -> Iterator[FeatureArray]:
    """Open the feature file of one video: `.npy`, `.npz`, or an archive named `.npy`.

    Args:
        path: The file; its content decides how it is read. Of an archive, the member
            `frames_features.npy` is read, or the only array in it.

    Yields:
        The array, [N, D] floating point.

    Raises:
        FeatureError: Unreadable, truncated, pickled, or not [seconds, D].
    """
    _guarded(path, lambda: check_regular(path))
    with _guarded(path, lambda: path.open("rb")) as file:
        packed = file.read(2) == b"PK"
        file.seek(0)
        if not packed:
            yield _array(path, file, path.stat().st_size)
            return
        with _guarded(path, lambda: zipfile.ZipFile(file)) as archive:
            member = _member(path, archive)
            with _guarded(path, lambda: archive.open(member)) as stream:
                yield _array(path, stream, member.file_size)


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    named = [info for info in arrays if info.filename == _MEMBER] or arrays
    if len(named) != 1:
        names = ", ".join(repr(info.filename) for info in arrays[:4]) or "none"
        raise FeatureError(
            "unreadable",
            f"{path}: expected one array '{_MEMBER}', found {names}. Save the features under the "
            "name frames_features.",
        )
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
    expected, found = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if expected != found:
        raise FeatureError(
            "unreadable",
            f"{path}: truncated or damaged (its header announces {expected} bytes, it has "
            f"{found}). Extract or copy it again.",
        )
    return FeatureArray(path, shape[0], shape[1], dtype, column_major, stream)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if np.lib.format.read_magic(stream) == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _guarded(path: Path, read: Callable[[], _Result]) -> _Result:
    """Return `read()`; turn what damaged files make NumPy and zipfile raise into FeatureErrors."""
    try:
        return read()
    except DataError as problem:  # not a regular file
        raise FeatureError("unreadable", str(problem)) from problem
    except (
        *(EOFError, zlib.error, zipfile.BadZipFile, lzma.LZMAError, ValueError, OSError),
        *(NotImplementedError, RuntimeError, SyntaxError, TypeError, OverflowError, MemoryError),
    ) as problem:
        raise FeatureError(
            "unreadable",
            f"{path}: truncated, damaged or not an array ({problem}). Extract or copy it again.",
        ) from problem
