"""The prepared data set: the one folder format that everything downstream reads.

- dataset.json: format version, name, observation dimension, provenance, SHA-256 of everything
- taxonomy.json: tasks and actions; videos.jsonl: one annotated video a line
- features.safetensors: `start` and `end` [S, E], one observation each of each step, in order
- action_text.safetensors: `action_text` [K, W], one text embedding an action (optional)
- timeline.safetensors: `rows` [R, D] of all whole videos, and their `counts` [V] (optional)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Annotations, Video, read_annotations, write_videos
from cefito.data.timeline import TIMELINE_FILE, Timeline
from cefito.data.vocabulary import Taxonomy
from cefito.errors import DataError, explained
from cefito.files import (
    check_array,
    check_regular,
    file_digest,
    load_tensors,
    read_json,
    unsealed,
    value_sealed,
    write_json,
    write_tensors,
)
from cefito.locks import new_folder
from cefito.markup import counted
from cefito.settings import Record, read_record

FORMAT_VERSION = 1
_PREPARE = "Prepare the data set again (cefito data prepare, cefito data simulate)."
_FILES = ("taxonomy.json", "videos.jsonl", "features.safetensors")  # required
TEXT_FILE = "action_text.safetensors"
_VIDEO_FOLDER = "video_folder"


@dataclass(frozen=True)
class Scene:
    """Where the picture of an observation is: a file, or a second of a film."""

    path: Path  # a picture, a film, or the folder of a data set's films
    second: float | None = None  # of a film; None for a picture
    video: str = ""  # id of the film in the folder


@dataclass(frozen=True)
class PreparedDataset:
    """An opened, validated data set.

    Args:
        folder: The folder that it was opened from.
        name: Name in tables; contains the word "simulated" if the observations are simulated.
        annotations: Taxonomy and annotated videos.
        start: Observation at the start of each step [S, E], float16 or float32.
        end: Observation at the end of each step [S, E].
        action_text: Text vectors of the actions [K, W]; None without them.
        provenance: Record of how it was made, in free form.
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
            f"PreparedDataset({self.name!r}, {counted(len(self.videos), 'video')}, "
            f"{counted(self.annotations.step_count, 'step')}, "
            f"{counted(len(self.taxonomy.tasks), 'task')}, "
            f"{counted(len(self.taxonomy.actions), 'action')}, "
            f"{self.observation_dim} features, in {str(self.folder)!r})"
        )

    @property
    def taxonomy(self) -> Taxonomy:
        """Tasks and actions."""
        return self.annotations.taxonomy

    @cached_property
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
        """Hash of the contents of all files: equal if and only if the data are equal.

        The timeline does not count, since windows do not depend on it.
        """
        return _fingerprint(self.hashes)

    @property
    def rows_digest(self) -> str | None:
        """Hash of the rows of whole videos and their rate, which `fingerprint` leaves out."""
        return self.hashes.get(TIMELINE_FILE)

    @cached_property
    def timeline(self) -> Timeline | None:
        """Rows of whole videos; None if the data set was prepared without them.

        Raises:
            DataError: The file has changed or is malformed.
        """
        if TIMELINE_FILE not in self.hashes:
            return None
        hashes = {TIMELINE_FILE: self.hashes[TIMELINE_FILE]}
        _compare_hashes(self.folder, hashes, sealed=True, needed=())
        return Timeline.read(self.folder / TIMELINE_FILE, self.annotations)

    @property
    def video_folder(self) -> Path | None:
        """Folder of the videos, if the data set records it; it may no longer exist."""
        recorded = self.provenance.get(_VIDEO_FOLDER)
        if not isinstance(recorded, str):
            return None
        return Path(os.path.normpath(self.folder.resolve() / recorded))

    def scenes(self, places: Sequence[tuple[int, int, int]]) -> NDArray[np.object_] | None:
        """Return the `Scene` of both ends of windows [N, 2]; None without a folder of videos.

        `places` are the video, the first step and the number of steps of each window [N].
        """
        folder = self.video_folder
        if folder is None:
            return None
        rows = []
        for index, first, length in places:
            video = self.videos[index]
            times = video.steps[first].start, video.steps[first + length - 1].end
            rows.append([Scene(folder, time, video.video_id) for time in times])
        return np.array(rows, dtype=object)

    def without_observations(self) -> PreparedDataset:
        """The same data set without the observations of any step."""
        nothing = np.zeros((0, self.observation_dim), dtype=self.start.dtype)
        return replace(self, start=nothing, end=nothing)


def name_and_fingerprint(folder: Path | str) -> tuple[str, str]:
    """Read only the name and fingerprint of a data set."""
    header, _ = _read_header(Path(folder))
    return header.name, _fingerprint(header.hashes)


def open_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared data set: validate its structure and values, and compare its files' hashes.

    The timeline is compared when it is first read.

    Raises:
        DataError: A file is missing, malformed, inconsistent or has changed.
    """
    folder = Path(folder)
    header, sealed = _read_header(folder)
    annotations = read_annotations(folder)
    start, end = _load(folder / "features.safetensors", "start", "end")
    place = str(folder / "features.safetensors")
    check_observations(annotations, start=start, end=end, place=place, remedy=_PREPARE)
    if start.shape[1] != header.observation_dim:
        both = f"{start.shape[1]} features, not the {header.observation_dim} of dataset.json"
        raise DataError(f"{place}: observations have {both}. {_PREPARE}")
    text = None
    if TEXT_FILE in header.hashes:
        (text,) = _load(folder / TEXT_FILE, "action_text")
        place = str(folder / TEXT_FILE)
        check_action_text(text, annotations.taxonomy, place=place, remedy=_PREPARE)
    hashes = {name: digest for name, digest in header.hashes.items() if name != TIMELINE_FILE}
    _compare_hashes(folder, hashes, sealed=sealed)
    return PreparedDataset(
        folder=folder,
        name=header.name,
        annotations=annotations,
        start=start,
        end=end,
        action_text=text,
        provenance=header.provenance,
        hashes=header.hashes,
    )


def _load(path: Path, *names: str) -> list[NDArray[Any]]:
    tensors, _ = load_tensors(path, "np", _PREPARE)
    with explained(path, "has no tensor", _PREPARE, KeyError):
        return [tensors[name] for name in names]


def _fingerprint(hashes: dict[str, str]) -> str:
    hashes = {name: digest for name, digest in hashes.items() if name != TIMELINE_FILE}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def check_observations(
    annotations: Annotations, *, start: NDArray[Any], end: NDArray[Any], place: str, remedy: str
) -> None:
    """Check that observations [S, E] are finite numbers, one row for each of the S steps.

    Args:
        annotations: Annotations with S steps.
        start: Observations at the starts [S, E].
        end: Observations at the ends [S, E].
        place: File, with which messages begin.
        remedy: What the user can do about rows that do not fit.
    """
    steps = annotations.step_count

    def owner(row: int) -> str:
        places = ((video, step) for video in annotations.videos for step in range(len(video.steps)))
        video, step = next(islice(places, row, None))
        return f" (video '{video.video_id}', step {step + 1}, counted from 1)"

    for name, array in (("start", start), ("end", end)):
        because = f"videos.jsonl has {steps} steps. {remedy}".rstrip(".")
        where = f"{place}, '{name}'"
        check_array(array, shape=(steps, None), place=where, because=because, where=owner)
    if start.shape != end.shape:
        shapes = f"'start' has shape {list(start.shape)} and 'end' {list(end.shape)}"
        raise DataError(f"{place}: {shapes}; expected the same. {remedy}")


def check_action_text(text: NDArray[Any], taxonomy: Taxonomy, *, place: str, remedy: str) -> None:
    """Check that text embeddings [K, W] are finite numbers, one row for each of the K actions.

    Args:
        text: Embeddings [K, W].
        taxonomy: Taxonomy with K actions.
        place: File, with which messages begin.
        remedy: What the user can do.
    """
    actions = len(taxonomy.actions)
    because = f"taxonomy.json has {actions} actions. {remedy}".rstrip(".")
    check_array(text, shape=(actions, None), place=place, because=because, rows="action")


class _Header(Record, extra="ignore"):
    """The content of dataset.json."""

    format_version: Literal[1]
    name: str
    observation_dim: int
    provenance: dict[str, Any]
    hashes: dict[str, str]


def _read_header(folder: Path) -> tuple[_Header, bool]:
    """Read dataset.json, and whether its content has the hash that it names."""
    path = folder / "dataset.json"
    value = read_json(path, "Expected a prepared data set; make one with cefito data prepare.")
    header = read_record(_Header, value, f"{path}: not of a data set", _PREPARE, DataError)
    return header, unsealed(value)[1]


def _compare_hashes(
    folder: Path, hashes: dict[str, str], *, sealed: bool, needed: tuple[str, ...] = _FILES
) -> None:
    """Check that every file still has the content with which it was written."""
    header = folder / "dataset.json"
    changed = "" if sealed else str(header)
    for name in sorted({*needed, *hashes}):
        path = folder / name
        check_regular(path, f"{header} lists it. {_PREPARE}")
        if Path(name).name != name or file_digest(path) != hashes.get(name):
            changed = changed or str(path)
    if changed:
        remedy = f"(SHA-256 other than in dataset.json). {_PREPARE}"
        raise DataError(f"{changed}: has changed since the data set was written {remedy}")


def write_dataset(
    folder: Path | str,
    *,
    name: str,
    annotations: Annotations,
    start: NDArray[np.floating[Any]],
    end: NDArray[np.floating[Any]],
    action_text: NDArray[np.floating[Any]] | None = None,
    timeline: Timeline | None = None,
    provenance: dict[str, Any],
) -> PreparedDataset:
    """Write a prepared data set into a new folder; it appears there only when complete and valid.

    Args:
        folder: New folder.
        name: Name shown in tables.
        annotations: Taxonomy and videos.
        start: Observation at the start of each step, [S, E].
        end: Observation at the end of each step, [S, E].
        action_text: Text embedding of each action, [K, W].
        timeline: Rows of the whole videos.
        provenance: Origin of the data, for JSON.

    Raises:
        DataError: The folder holds something, or the arrays do not fit the annotations.
    """
    folder = Path(folder)
    remedy = "Give one row a step, all of one size."
    place = f"{folder}, observations"
    check_observations(annotations, start=start, end=end, place=place, remedy=remedy)
    with new_folder(folder) as temporary:
        write_json(temporary / "taxonomy.json", annotations.taxonomy.to_dict())
        write_videos(temporary / "videos.jsonl", annotations.videos)
        write_tensors(temporary / "features.safetensors", {"start": start, "end": end})
        if action_text is not None:
            place, remedy = f"{folder}, action_text", "Give one row an action."
            check_action_text(action_text, annotations.taxonomy, place=place, remedy=remedy)
            write_tensors(temporary / TEXT_FILE, {"action_text": action_text})
        if timeline is not None:
            timeline.check(annotations, f"{folder}, timeline")
            timeline.write(temporary / TIMELINE_FILE)
        header = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "observation_dim": int(start.shape[1]),
            "provenance": provenance,
            "hashes": {path.name: file_digest(path) for path in sorted(temporary.iterdir())},
        }
        write_json(temporary / "dataset.json", value_sealed(header))
        try:
            dataset = open_dataset(temporary)
        except DataError as problem:
            raise DataError(str(problem).replace(str(temporary), str(folder))) from problem
    return replace(dataset, folder=folder)


def video_folder_entry(videos: Path | None, target: Path) -> dict[str, str]:
    """The provenance entry of a data set's video folder, relative so that both can be moved."""
    if videos is None:
        return {}
    try:
        relative = os.path.relpath(videos.resolve(), target.resolve())
    except ValueError:  # on another drive (Windows)
        return {}
    return {_VIDEO_FOLDER: Path(relative).as_posix()}
