"""Feature files of one video: a NumPy array, or an archive that holds one.

The published S3D features are `.npz` archives although their names end in `.npy`; of the members,
only `frames_features.npy` is opened, because others may be pickled.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import check_regular, load_npy, load_npz
from cefito.errors import DataError, explained

__all__ = ["FeatureArray", "FeatureError", "load_features"]

_MEMBER = "frames_features"


class FeatureError(DataError):
    """A feature file that cannot be used; `reason` is the short name under which it is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class FeatureArray:
    """Features of one video, one row a second; the numbers may still be NaN or infinite."""

    path: Path
    values: NDArray[np.floating[Any]]  # [N, D]

    @property
    def rows(self) -> int:
        """Number of seconds, N."""
        return len(self.values)

    @property
    def width(self) -> int:
        """Numbers a second, D."""
        return int(self.values.shape[1])

    def read(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return some rows as float32 [R, D]; refuse NaN and infinity."""
        with np.errstate(over="ignore"):
            found = self.values[wanted].astype(np.float32)
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            second = int(wanted[int(np.argmin(finite))])
            problem = f"second {second} (row {second}, counted from 0) holds NaN or infinity"
            raise FeatureError("NaN or infinity", f"{self.path}: {problem}. Extract it again.")
        return found


def load_features(path: Path) -> FeatureArray:
    """Load the feature file of one video: an array, or an archive, whatever its name ends in."""
    try:
        check_regular(path)
        kinds = OSError, zipfile.BadZipFile
        damaged = explained(path, "truncated or damaged", "Extract or copy it again.", *kinds)
        with damaged, path.open("rb") as file:
            packed = file.read(2) == b"PK"
            member = _member(path) if packed else ""
        values = load_npz(path, (member,))[member] if packed else load_npy(path)
    except DataError as problem:
        raise FeatureError("unreadable", str(problem)) from problem
    if values.dtype.kind != "f" or values.ndim != 2 or 0 in values.shape:
        found = f"holds {values.dtype} {list(values.shape)}"
        expected = "expected floating-point numbers [seconds, D]. Save one row a second."
        raise FeatureError("wrong shape", f"{path}: {found}; {expected}")
    return FeatureArray(path, values)


def _member(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        arrays = [name for name in archive.namelist() if name.endswith(".npy")]
    named = [name for name in arrays if name == f"{_MEMBER}.npy"] or arrays
    if len(named) != 1:
        found = ", ".join(map(repr, arrays[:4])) or "none"
        raise DataError(f"{path}: expected one array '{_MEMBER}.npy', found {found}.")
    return named[0].removesuffix(".npy")
