"""The prepared data set: the one folder format that everything downstream reads.

    dataset.json              format version, name, observation dimension, provenance, SHA-256 of the other files
    taxonomy.json             tasks and actions
    videos.jsonl              one annotated video a line
    features.safetensors      `start` and `end` [S, E]: the observation at the start and at the end of each of the S steps,
                              in the order of videos.jsonl and of its steps
    action_text.safetensors   `action_text` [K, W]: a text embedding a action (optional)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.data.videos import Annotations, Video, read_annotations, write_videos
from cefito.errors import DataError
from cefito.files import check_array, load_tensors, new_folder, read_json, sha256, write_json, write_tensors

__all__ = ["FORMAT_VERSION", "PreparedDataset", "open_dataset", "verify_dataset", "write_dataset"]

FORMAT_VERSION = 1
_PREPARE = "Prepare the data set again (cefito data prepare, cefito data simulate)."


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
        import hashlib

        return hashlib.sha256(json.dumps(self.hashes, sort_keys=True).encode()).hexdigest()


def open_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared data set and validate its structure and values.

    Hashes are not recomputed here; `verify_dataset` does that.

    Raises:
        DataError: A file is missing, truncated, malformed or inconsistent; the message names file, place and remedy.
    """
    folder = Path(folder)
    header = _read_header(folder)
    annotations = read_annotations(folder)
    arrays, _ = load_tensors(folder / "features.safetensors", "np", _PREPARE)
    place = str(folder / "features.safetensors")
    rows, width = annotations.step_count, header["observation_dim"]
    for name in ("start", "end"):
        if name not in arrays:
            raise DataError(f"{place}: has no tensor '{name}'. {_PREPARE}")
        if len(arrays[name]) != rows:
            raise DataError(f"{place}: '{name}' has {len(arrays[name])} rows, but videos.jsonl has {rows} steps. {_PREPARE}")
        check_array(arrays[name], shape=(rows, width), place=f"{place}, '{name}'")
    text = None
    if "action_text.safetensors" in header["hashes"]:
        place = str(folder / "action_text.safetensors")
        tensors, _ = load_tensors(folder / "action_text.safetensors", "np", _PREPARE)
        text = check_array(tensors["action_text"], shape=(len(annotations.taxonomy.actions), None), place=place)
    return PreparedDataset(folder=folder, name=header["name"], annotations=annotations, start=arrays["start"],
                           end=arrays["end"], action_text=text, provenance=header["provenance"], hashes=header["hashes"])


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    if not path.exists() and (folder / "taxonomy.json").exists():
        raise DataError(f"{folder}: holds annotations but is no prepared data set (no dataset.json). Prepare it first: "
                        f"cefito data prepare custom {folder} OUT, or cefito data simulate {folder} OUT without features.")
    value = read_json(path, "Expected a prepared data set; make one with cefito data prepare.")
    expected = {"format_version": int, "name": str, "observation_dim": int, "provenance": dict, "hashes": dict}
    for key, kind in expected.items():
        if not isinstance(value, dict) or not isinstance(value.get(key), kind):
            raise DataError(f"{path}: entry '{key}' is missing or not of type {kind.__name__}. {_PREPARE}")
    if value["format_version"] != FORMAT_VERSION:
        raise DataError(f"{path}: has format version {value['format_version']}, this cefito reads {FORMAT_VERSION}. {_PREPARE}")
    return dict(value)


def write_dataset(folder: Path | str, *, name: str, annotations: Annotations, start: NDArray[np.floating[Any]],
                  end: NDArray[np.floating[Any]], action_text: NDArray[np.floating[Any]] | None = None,
                  provenance: dict[str, Any]) -> PreparedDataset:
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
    with new_folder(folder) as temporary:
        write_json(temporary / "taxonomy.json", annotations.taxonomy.to_dict())
        write_videos(temporary / "videos.jsonl", annotations.videos)
        write_tensors(temporary / "features.safetensors", {"start": start, "end": end})
        if action_text is not None:
            write_tensors(temporary / "action_text.safetensors", {"action_text": action_text})
        hashes = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        write_json(temporary / "dataset.json", {
            "format_version": FORMAT_VERSION, "name": name, "observation_dim": int(start.shape[1]),
            "provenance": provenance, "hashes": hashes})
        open_dataset(temporary)
    return open_dataset(folder)


def verify_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared data set and recompute the hash of every file.

    Raises:
        DataError: As `open_dataset`, or a file has changed since it was written.
    """
    folder = Path(folder)
    hashes = _read_header(folder)["hashes"]
    for name, expected in hashes.items():
        path = folder / name
        if not path.exists():
            raise DataError(f"{path}: no such file. {_PREPARE}")
        if sha256(path) != expected:
            raise DataError(f"{path}: has changed since the data set was written (its SHA-256 differs from dataset.json). {_PREPARE}")
    return open_dataset(folder)
