"""Feature files: an array a video, of NumPy, PyTorch or HDF5, and folders of them.

The published S3D features are `.npz` archives although their names end in `.npy`; of the members,
only `frames_features.npy` is opened, because others may be pickled.
"""

from __future__ import annotations

import math
import zipfile
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import load_npy, load_npz, load_torch
from cefito.data.vocabulary import nfc
from cefito.errors import DataError, RunError, explained
from cefito.files import check_binary, has_ending

_MEMBER = "frames_features"
_TORCH, _HDF5 = (".pt", ".pth"), (".h5", ".hdf5")
_ENDINGS = (".npy", ".npz", *_TORCH, *_HDF5)
_SEEN = (".mp4", ".mkv", ".mov", ".webm", ".avi", ".png", ".jpg", ".jpeg")
MOST_FILES = 200_000  # entries of a folder and its subfolders; COIN has 11,827 videos


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

    def at_rate(self, rate: float) -> NDArray[np.float32]:
        """Return rows at another number a second, as `read` does of seconds, float32 [R, D]."""
        scaled = FeatureArray(self.path, self.values, self.rate / rate)
        return scaled.read(np.arange(scaled.rows))

    @property
    def width(self) -> int:
        """Numbers a second, D."""
        return int(self.values.shape[1])

    def read(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows in the middle of some seconds, float32 [R, D]; refuse NaN, infinity."""
        # second s is seen at s + 1/2, in row floor((s + 1/2) · rate), which is s at one a second
        rows = np.minimum(np.floor((wanted + 0.5) * self.rate).astype(int), len(self.values) - 1)
        with np.errstate(over="ignore"):
            vectors: NDArray[np.float32] = self.values[rows].astype(np.float32)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            place = int(np.argmin(finite))
            second = f"second {wanted[place]} (row {rows[place]}, counted from 0)"
            problem = f"{second} holds NaN or infinity"
            raise FeatureError("NaN or infinity", f"{self.path}: {problem}. Extract it again.")
        return vectors


def is_features(path: Path) -> bool:
    """Whether a path has an ending of files of features."""
    return has_ending(path, _ENDINGS)


def load_features(path: Path, rate: float = 1.0, *, transposed: bool = False) -> FeatureArray:
    """Load the feature file of one video: one array, or an archive or a mapping that holds it.

    Args:
        path: The file.
        rate: Rows a second.
        transposed: Whether the array is [D, rows].

    Raises:
        FeatureError: Damaged, or not floating-point numbers of two axes.
    """
    try:
        values = _stored(path)
    except (DataError, RunError) as problem:
        raise FeatureError("unreadable", str(problem)) from problem
    if values.dtype.kind != "f" or values.ndim != 2 or 0 in values.shape:
        fault = f"holds {values.dtype} {list(values.shape)}"
        expected = "expected floating-point numbers [seconds, D]. Save one row a second."
        raise FeatureError("wrong shape", f"{path}: {fault}; {expected}")
    return FeatureArray(path, values.T if transposed else values, rate)


def _stored(path: Path) -> NDArray[Any]:
    """The one array in a file; of NumPy if it does not end as files of PyTorch or HDF5."""
    if has_ending(path, _SEEN):
        remedy = "Give it as a video or picture, or extract its features"
        raise DataError(f"{path}: is a film or a picture, not features. {remedy}.")
    if has_ending(path, _TORCH):
        content = load_torch(path, "Make it again.")
        tensors = content if isinstance(content, Mapping) else {_MEMBER: content}
        arrays: dict[str, Any] = {
            str(name): (tensor.float() if tensor.is_floating_point() else tensor).numpy(force=True)
            for name, tensor in tensors.items()
            if hasattr(tensor, "is_floating_point") and not tensor.is_sparse
        }
        tensor: NDArray[Any] = arrays[_only(path, arrays)]
        return tensor
    if has_ending(path, _HDF5):
        remedy = "Run: pip install h5py"
        with explained(path, "cannot be read without h5py", remedy, ImportError, error=DataError):
            import h5py
        damaged = explained(path, "truncated or damaged", "Copy it again.", OSError, RuntimeError)
        with damaged, h5py.File(path) as file:
            arrays = {
                name: dataset for name, dataset in file.items() if isinstance(dataset, h5py.Dataset)
            }
            values: NDArray[Any] = arrays[_only(path, arrays)][()]
            return values
    check_binary(path)
    remedy, kinds = "Extract or copy it again.", (OSError, zipfile.BadZipFile)
    with explained(path, "truncated or damaged", remedy, *kinds):
        if not zipfile.is_zipfile(path):
            return load_npy(path)
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
        member = _only(path, [name.removesuffix(".npy") for name in names])
        return load_npz(path, (member,))[member]


def _only(path: Path, names: Collection[str]) -> str:
    """The name of the array of features: the only one, or that of the published files."""
    named = [name for name in names if name == _MEMBER] or [*names]
    if len(named) != 1:
        choices = ", ".join(map(repr, named[:4])) or "none"
        remedy = "Save one array [seconds, D] alone."
        raise DataError(f"{path}: expected one array '{_MEMBER}', found {choices}. {remedy}")
    return named[0]


def feature_name(entry: str) -> str:
    """The bare name of a feature file: "23521_X" for "a/b/23521_X.npy"."""
    return PurePosixPath(_without_ending(entry, _ENDINGS)).name


def _without_ending(entry: str, endings: Sequence[str]) -> str:
    """The path of a file, with slashes, without one of these endings."""
    path = entry.replace("\\", "/")
    ending = next((ending for ending in endings if path.lower().endswith(ending)), "")
    return path[: len(path) - len(ending)]


class FileFolder:
    """The files with some endings in a folder and its subfolders, one a video.

    A file is found by its path, or the longest end of it ("a/P01/cam.mp4" finds "P01/cam.npy", or
    else "cam.npy"), by the end of its name after an underscore ("X" finds "23521_X.npy"), or by its
    beginning before an underscore or a dot ("1_7" finds "1_7_360p.mp4.npz"), in any Unicode form.
    Names are only compared with the names of existing files, so none leads out of the folder.

    Args:
        folder: The folder.
        endings: Endings of the files, with the dot.
        kind: Word for a file in messages.
    """

    def __init__(
        self, folder: Path, *, endings: Sequence[str] = _ENDINGS, kind: str = "feature file"
    ) -> None:
        self.folder = Path(folder)
        self._endings, self._kind = tuple(endings), kind
        remedy = f"Give the folder with one {kind} a video."
        if not self.folder.is_dir():
            fault = "is a file, not a folder" if self.folder.exists() else "no such folder"
            raise DataError(f"{folder}: {fault}. {remedy}")
        self._whole: dict[str, list[Path]] = defaultdict(list)
        self._exact: dict[str, list[Path]] = defaultdict(list)
        self._ends: dict[str, list[Path]] = defaultdict(list)
        self._beginnings: dict[str, list[Path]] = defaultdict(list)
        entries = list(islice(self.folder.rglob("*"), MOST_FILES + 1))
        if len(entries) > MOST_FILES:
            raise DataError(f"{folder}: holds more than {MOST_FILES:,} files and folders. {remedy}")
        for path in sorted(entries):
            if (
                not has_ending(path, self._endings)
                or path.name.startswith(".")
                or not path.is_file()
            ):
                continue
            stem = nfc(path.stem)
            inside = nfc(path.relative_to(self.folder).with_suffix("").as_posix())
            self._whole[inside].append(path)
            for tail in _tails(inside):
                self._exact[tail].append(path)
            for place, letter in enumerate(stem):
                if letter == "_":
                    self._ends[stem[place + 1 :]].append(path)
                if letter in "_.":
                    self._beginnings[stem[:place]].append(path)
        if not self._exact:
            raise DataError(f"{folder}: holds no {_either(self._endings)} files. {remedy}")

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return sorted(path for paths in self._whole.values() for path in paths)

    def find(self, names: Sequence[str]) -> tuple[Path, str]:
        """Find the file of a video by its possible names; return it and the name that matched.

        The likeliest name comes first; endings in names are ignored.
        """
        paths = [nfc(_without_ending(name, self._endings)) for name in names if name]
        whole = [nfc(name) for name in names] + paths
        wanted = [tail for path in paths for tail in _tails(path)]
        tables = self._exact, self._ends, self._beginnings
        for table, keys in ((self._whole, whole), *((table, wanted) for table in tables)):
            for name in keys:
                matches = table.get(name, [])
                if len(matches) == 1:
                    return matches[0], name
                if matches:
                    listed = ", ".join(
                        path.relative_to(self.folder).as_posix() for path in matches[:3]
                    )
                    problem = f"several files may belong to video '{names[-1]}': {listed}"
                    remedy = "Keep one, or name the video with its folder."
                    raise FeatureError("several files", f"{self.folder}: {problem}. {remedy}")
        looked = f"{', '.join(dict.fromkeys(wanted))}, as {_either(self._endings)}"
        problem = f"no file for video '{names[-1]}' (looked for {looked})"
        raise FeatureError("no features", f"{self.folder}: {problem}.")

    def owned(self, videos: Mapping[str, Sequence[str]]) -> dict[str, Path]:
        """Find the files of videos by their possible names, each of the video of longest name."""
        owners: dict[Path, tuple[str, str]] = {}
        for video, names in videos.items():
            try:
                path, name = self.find(names)
            except FeatureError:
                continue
            if path not in owners or len(name) > len(owners[path][1]):
                owners[path] = video, name
        return {video: path for path, (video, _) in owners.items()}


def _tails(path: str) -> list[str]:
    """The ends of a path at its slashes, the longest first."""
    parts = [folder for folder in path.split("/") if folder not in ("", ".", "..")]
    return ["/".join(parts[place:]) for place in range(len(parts))]


def _either(endings: Sequence[str]) -> str:
    return " or ".join([", ".join(endings[:-1]), endings[-1]])
