"""Feature files of one video: a NumPy array, or an archive that holds one.

The published S3D features are `.npz` archives although their names end in `.npy`; of the members,
only `frames_features.npy` is opened, because others may be pickled.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import check_binary, load_npy, load_npz
from cefito.errors import DataError, explained

_MEMBER = "frames_features"


class FeatureError(DataError):
    """A feature file that cannot be used; `reason` is the short name under which it is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class FeatureArray:
    """Features of one video; the numbers may still be NaN or infinite."""

    path: Path
    values: NDArray[np.floating[Any]]  # [N, D]
    rate: float = 1.0  # rows a second

    @property
    def rows(self) -> int:
        """Number of seconds whose middle is within the features, at least 1; N at one a second."""
        return max(1, math.ceil(len(self.values) / self.rate - 0.5))

    @property
    def width(self) -> int:
        """Numbers a second, D."""
        return int(self.values.shape[1])

    def read(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows in the middle of some seconds, float32 [R, D]; refuse NaN, infinity."""
        # second s is seen at s + 1/2, in row floor((s + 1/2) · rate), which is s at one a second
        rows = np.minimum(np.floor((wanted + 0.5) * self.rate).astype(int), len(self.values) - 1)
        with np.errstate(over="ignore"):
            found: NDArray[np.float32] = self.values[rows].astype(np.float32)
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            place = int(np.argmin(finite))
            second = f"second {wanted[place]} (row {rows[place]}, counted from 0)"
            problem = f"{second} holds NaN or infinity"
            raise FeatureError("NaN or infinity", f"{self.path}: {problem}. Extract it again.")
        return found


def load_features(path: Path, rate: float = 1.0) -> FeatureArray:
    """Load the feature file of one video: an array, or an archive, whatever its name ends in."""
    try:
        check_binary(path)
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
    return FeatureArray(path, values, rate)


def _member(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        arrays = [name for name in archive.namelist() if name.endswith(".npy")]
    named = [name for name in arrays if name == f"{_MEMBER}.npy"] or arrays
    if len(named) != 1:
        found = ", ".join(map(repr, arrays[:4])) or "none"
        raise DataError(f"{path}: expected one array '{_MEMBER}.npy', found {found}.")
    return named[0].removesuffix(".npy")
