"""The prepared data set: the one folder format that everything downstream reads.

- dataset.json: format version, name, observation dimension, provenance, SHA-256 of the other files
  and of its own entries
- taxonomy.json: tasks and actions
- videos.jsonl: one annotated video a line
- features.safetensors: `start` and `end` [S, E], the observation at the start and at the end of
  each of the S steps, in the order of videos.jsonl and of its steps
- action_text.safetensors: `action_text` [K, W], a text embedding an action (optional)
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.data.videos import Annotations, Video, read_annotations, write_videos
from cefito.errors import DataError
from cefito.files import (
    check_array,
    load_tensors,
    new_folder,
    read_json,
    write_json,
    write_tensors,
)
from cefito.hashes import file_digest, unsealed, value_sealed
from cefito.notebook import Folded, card

__all__ = [
    "FORMAT_VERSION",
    "PreparedDataset",
    "name_and_fingerprint",
    "open_dataset",
    "verify_dataset",
    "write_dataset",
    "write_header",
]

FORMAT_VERSION = 1
_PREPARE = "Prepare the data set again (cefito data prepare, cefito data simulate)."
_FILES = ("taxonomy.json", "videos.jsonl", "features.safetensors")  # that every data set has


@dataclass(frozen=True)
class PreparedDataset:
    """An opened, validated data set.

    Attributes:
        folder: Where it lies.
        name: Name shown in tables; holds the word "simulated" where the observations are.
        annotations: Taxonomy and videos.
        start: Observation at the start of each step, [S, E], as stored (float16 or float32).
        end: Observation at the end of each step, [S, E].
        action_text: Text embedding of each action, [K, W], or None.
        provenance: Where it came from, free form.
        hashes: SHA-256 of each file, by name.
    """

    folder: Path
    name: str
    annotations: Annotations
    start: NDArray[np.floating[Any]]
    end: NDArray[np.floating[Any]]
    action_text: NDArray[np.floating[Any]] | None
    provenance: dict[str, Any]
    hashes: dict[str, str]

    def __repr__(self) -> str:
        return (
            f"PreparedDataset({self.name!r}, {len(self.videos)} videos, "
            f"{self.annotations.step_count} steps, "
            f"{len(self.taxonomy.tasks)} tasks, {len(self.taxonomy.actions)} actions, "
            f"{self.observation_dim} features, in {str(self.folder)!r})"
        )

    def _repr_html_(self) -> str:
        videos, steps, splits = Counter[int](), Counter[int](), Counter[str]()
        for video in self.videos:
            videos[video.task] += 1
            steps[video.task] += len(video.steps)
            splits[video.split] += 1
        tasks = [(task.name, videos[task.id], steps[task.id]) for task in self.taxonomy.tasks]
        return card(
            f"Data set {self.name}",
            {
                "videos": ", ".join(f"{split} {count:,}" for split, count in splits.items()),
                "steps": self.annotations.step_count,
                "tasks": len(self.taxonomy.tasks),
                "actions": len(self.taxonomy.actions),
                "features of an observation": self.observation_dim,
                "fingerprint": self.fingerprint,
                "folder": self.folder,
            },
            [Folded("Tasks", ("task", "videos", "steps"), tasks)],
        )

    @property
    def taxonomy(self) -> Taxonomy:
        """Tasks and actions."""
        return self.annotations.taxonomy

    @property
    def videos(self) -> tuple[Video, ...]:
        """Annotated videos, in the order of the features."""
        return self.annotations.videos

    @property
    def observation_dim(self) -> int:
        """E, the number of features of one observation."""
        return int(self.start.shape[1])

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """Row of each video's first step in `start` and `end`, [V]."""
        counts = np.array([len(video.steps) for video in self.videos], dtype=np.int64)
        return np.concatenate([[0], np.cumsum(counts)[:-1]])

    @cached_property
    def fingerprint(self) -> str:
        """One hash over the content of all files: equal if and only if the data are."""
        return _fingerprint(self.hashes)

    def without_observations(self) -> PreparedDataset:
        """The same names, videos and hashes with no observation of any step."""
        nothing = np.zeros((0, self.observation_dim), dtype=self.start.dtype)
        return replace(self, start=nothing, end=nothing)


def name_and_fingerprint(folder: Path | str) -> tuple[str, str]:
    """Name and fingerprint of a data set, of which nothing else is read.

    Raises:
        DataError: It is none.
    """
    header = _read_header(Path(folder))
    return header["name"], _fingerprint(header["hashes"])


def open_dataset(folder: Path | str, *, verify: bool = False) -> PreparedDataset:
    """Open a prepared data set: validate its structure and values, and compare its files' hashes.

    So a fingerprint always is that of the data that are read. Within a process, a file that has
    not changed since it was compared (by size, times and inode) is not read for its hash again.

    Args:
        folder: Where it lies.
        verify: Hash every file, whether it seems unchanged or not.

    Raises:
        DataError: A file is missing, truncated, malformed, inconsistent or has changed since the
            data set was written; the message names file, place and remedy.
    """
    folder = Path(folder)
    header = _read_header(folder)
    annotations = read_annotations(folder)
    arrays, _ = load_tensors(folder / "features.safetensors", "np", _PREPARE)
    place = str(folder / "features.safetensors")
    for name in ("start", "end"):
        if name not in arrays:
            raise DataError(f"{place}: has no tensor '{name}'. {_PREPARE}")
    check_observations(
        annotations, start=arrays["start"], end=arrays["end"], place=place, remedy=_PREPARE
    )
    if arrays["start"].shape[1] != header["observation_dim"]:
        raise DataError(
            f"{place}: observations have {arrays['start'].shape[1]} features, but dataset.json "
            f"says {header['observation_dim']}. {_PREPARE}"
        )
    text = None
    if "action_text.safetensors" in header["hashes"]:
        place = str(folder / "action_text.safetensors")
        tensors, _ = load_tensors(folder / "action_text.safetensors", "np", _PREPARE)
        if "action_text" not in tensors:
            raise DataError(f"{place}: has no tensor 'action_text'. {_PREPARE}")
        text = tensors["action_text"]
        check_action_text(annotations, text, place=place, remedy=_PREPARE)
    _compare_hashes(folder, header, anew=verify)
    return PreparedDataset(
        folder=folder,
        name=header["name"],
        annotations=annotations,
        start=arrays["start"],
        end=arrays["end"],
        action_text=text,
        provenance=header["provenance"],
        hashes=header["hashes"],
    )


def _fingerprint(hashes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def check_observations(
    annotations: Annotations, *, start: NDArray[Any], end: NDArray[Any], place: str, remedy: str
) -> None:
    """Check that observations are finite numbers and fit the annotations, row for step.

    Args:
        annotations: The videos; S steps.
        start: Observations at the start of the steps, [S, E].
        end: Observations at the end of the steps, [S, E].
        place: File in which they stand, for the message.
        remedy: What to do about rows that do not fit, the last sentence of the message.

    Raises:
        DataError: Wrong type or shape, no features (E = 0), rows ≠ steps, NaN or infinity (with the
            video and step).
    """
    steps = annotations.step_count
    for name, array in (("start", start), ("end", end)):
        if array.ndim == 2 and len(array) != steps:
            raise DataError(
                f"{place}: '{name}' has {len(array)} rows, but videos.jsonl has {steps} steps in "
                f"{len(annotations.videos)} videos; each step takes one row. {remedy}"
            )
        if array.ndim == 2 and array.shape[1] == 0:
            raise DataError(
                f"{place}: '{name}' has shape {list(array.shape)}, observations without features. "
                f"{remedy}"
            )
        if array.ndim == 2 and array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
            video, step = _owner(annotations, row)
            raise DataError(
                f"{place}: row {row} of '{name}' holds NaN, infinity or a number too large for "
                f"float32; it belongs to video '{video.video_id}', step {step} (rows and steps "
                "counted from 0). Extract it again or leave the video out."
            )
        check_array(array, shape=(steps, None), place=f"{place}, '{name}'")
    if start.shape != end.shape:
        raise DataError(
            f"{place}: 'start' has shape {list(start.shape)} and 'end' {list(end.shape)}; both "
            f"must be the same. {remedy}"
        )


def check_action_text(
    annotations: Annotations, text: NDArray[Any], *, place: str, remedy: str
) -> None:
    """Check that text embeddings are finite numbers, one row an action.

    Args:
        annotations: Their taxonomy has K actions.
        text: The embeddings, [K, W].
        place: File in which they stand, for the message.
        remedy: What to do about rows that do not fit, the last sentence of the message.

    Raises:
        DataError: Wrong type or shape, W = 0, rows ≠ actions, NaN or infinity.
    """
    actions = len(annotations.taxonomy.actions)
    if text.ndim == 2 and (len(text) != actions or text.shape[1] == 0):
        raise DataError(
            f"{place}: has shape {list(text.shape)}, but taxonomy.json has {actions} actions; each "
            f"takes one row of at least one number. {remedy}"
        )
    check_array(text, shape=(actions, None), place=place)


def _owner(annotations: Annotations, row: int) -> tuple[Video, int]:
    for video in annotations.videos:
        if row < len(video.steps):
            return video, row
        row -= len(video.steps)
    raise IndexError(row)


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    if not path.exists() and (folder / "taxonomy.json").exists():
        raise DataError(
            f"{folder}: holds annotations but is no prepared data set (no dataset.json). Prepare "
            f"it first: cefito data prepare custom {folder} OUT, or without features cefito data "
            f"simulate {folder} OUT."
        )
    value = read_json(path, "Expected a prepared data set; make one with cefito data prepare.")
    expected = {
        "format_version": int,
        "name": str,
        "observation_dim": int,
        "provenance": dict,
        "hashes": dict,
    }
    for key, kind in expected.items():
        if (
            not isinstance(value, dict)
            or not isinstance(value.get(key), kind)
            or isinstance(value[key], bool)
        ):
            raise DataError(
                f"{path}: entry '{key}' is missing or not of type {kind.__name__}. {_PREPARE}"
            )
    if value["format_version"] != FORMAT_VERSION:
        raise DataError(
            f"{path}: has format version {value['format_version']}, this cefito reads "
            f"{FORMAT_VERSION}. {_PREPARE}"
        )
    return dict(value)


def _compare_hashes(folder: Path, value: dict[str, Any], *, anew: bool) -> None:
    """See that every file still has the content that it was written with.

    Args:
        folder: Where they lie.
        value: Content of `dataset.json`.
        anew: Hash every file, whether it seems unchanged or not.

    Raises:
        DataError: One has not, or has no hash.
    """
    header, hashes = folder / "dataset.json", value["hashes"]
    unlisted = sorted(set(_FILES) - hashes.keys())
    if unlisted:
        raise DataError(f"{header}: lists no hash of {unlisted[0]}. {_PREPARE}")
    if not unsealed(value)[1]:
        raise DataError(
            f"{header}: has changed since the data set was written (its entries differ from their "
            f"own SHA-256). {_PREPARE}"
        )
    for name, expected in hashes.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise DataError(f"{path}: no such file, but {header} lists it. {_PREPARE}")
        if file_digest(path, anew=anew) != expected:
            raise DataError(
                f"{path}: has changed since the data set was written (its SHA-256 differs from "
                f"dataset.json). {_PREPARE}"
            )


def write_dataset(
    folder: Path | str,
    *,
    name: str,
    annotations: Annotations,
    start: NDArray[np.floating[Any]],
    end: NDArray[np.floating[Any]],
    action_text: NDArray[np.floating[Any]] | None = None,
    provenance: dict[str, Any],
) -> PreparedDataset:
    """Write a prepared data set into a new folder; it appears there only when complete and valid.

    Args:
        folder: Target, which must not hold anything yet.
        name: Name shown in tables.
        annotations: Taxonomy and videos.
        start: Observation at the start of each step, [S, E].
        end: Observation at the end of each step, [S, E].
        action_text: Text embedding of each action, [K, W].
        provenance: Where the data came from; anything JSON holds.

    Raises:
        DataError: The folder is taken, the arrays do not fit the annotations, or the disk is full.
    """
    folder = Path(folder)
    check_observations(
        annotations,
        start=start,
        end=end,
        place=f"{folder}, observations",
        remedy="Give one row a step, of one size.",
    )
    with new_folder(folder) as temporary:
        write_json(temporary / "taxonomy.json", annotations.taxonomy.to_dict())
        write_videos(temporary / "videos.jsonl", annotations.videos)
        write_tensors(temporary / "features.safetensors", {"start": start, "end": end})
        if action_text is not None:
            check_action_text(
                annotations,
                action_text,
                place=f"{folder}, action_text",
                remedy="Give one row an action.",
            )
            write_tensors(temporary / "action_text.safetensors", {"action_text": action_text})
        write_header(
            temporary, name=name, observation_dim=int(start.shape[1]), provenance=provenance
        )
        try:
            open_dataset(temporary)
        except DataError as problem:
            raise DataError(str(problem).replace(str(temporary), str(folder))) from problem
    return open_dataset(folder)


def write_header(
    folder: Path, *, name: str, observation_dim: int, provenance: dict[str, Any]
) -> None:
    """Write the `dataset.json` of a folder that holds all other files of a data set, the last one.

    Args:
        folder: The folder.
        name: Name shown in tables.
        observation_dim: E.
        provenance: Where the data came from; anything JSON holds.
    """
    header = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "observation_dim": observation_dim,
        "provenance": provenance,
        "hashes": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / "dataset.json", value_sealed(header))


def verify_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared data set and recompute the hash of every file.

    Raises:
        DataError: As `open_dataset`.
    """
    return open_dataset(folder, verify=True)
