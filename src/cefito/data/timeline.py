"""Rows of whole videos at a constant rate, from which steps are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import load_npz
from cefito.data.annotations import Annotations, Step
from cefito.errors import DataError, explained
from cefito.files import check_array, load_tensors, write_tensors

TIMELINE_FILE = "timeline.safetensors"
RATES = (0.01, 1000.0)
"""Least and greatest number of rows a second."""
_NO_NUMBERS = ValueError, TypeError, IndexError
_REMEDY = "Prepare the data set again (cefito data prepare)."


@dataclass(frozen=True, eq=False)
class Timeline:
    """The rows of all videos; row i of a video shows the time from i / rate to (i + 1) / rate."""

    videos: tuple[NDArray[np.float16], ...]  # [n, D] of each video, in the order of videos.jsonl
    rate: float = 1.0  # rows a second

    @property
    def width(self) -> int:
        """D."""
        return int(self.videos[0].shape[1])

    def check(self, annotations: Annotations, place: str, remedy: str = _REMEDY) -> None:
        """Check that there are rows of each video, of one width, all finite (DataError).

        Args:
            annotations: Annotations of the videos.
            place: File, with which messages begin.
            remedy: What the user can do.
        """
        if len(self.videos) != len(annotations.videos):
            count = f"{len(self.videos)} videos; videos.jsonl has {len(annotations.videos)}"
            raise DataError(f"{place}: has rows of {count}. {remedy}")
        if not RATES[0] <= self.rate <= RATES[1]:
            raise DataError(f"{place}: has the rate {self.rate}; expected rows a second. {remedy}")
        for rows, video in zip(self.videos, annotations.videos, strict=True):
            where = f"{place}, video '{video.video_id}'"
            if not rows.size:
                raise DataError(f"{where}: has no rows. Leave the video out.")
            width = self.width if self.videos[0].ndim > 1 else None
            check_array(rows, shape=(None, width), place=where, because=remedy.rstrip("."))

    def write(self, path: Path) -> None:
        """Write the rows as one array and their numbers; `read` reads them back."""
        counts = np.array([len(rows) for rows in self.videos])
        tensors = {"rows": np.concatenate(self.videos).astype(np.float16), "counts": counts}
        write_tensors(path, tensors, {"rate": repr(self.rate)})

    @classmethod
    def read(cls, path: Path, annotations: Annotations) -> Timeline:
        """Read and check the file of a data set (DataError)."""
        tensors, metadata = load_tensors(path, "np", _REMEDY)
        try:
            rows, counts = tensors["rows"], tensors["counts"]
            parts = np.split(rows, np.cumsum(counts)[:-1])
            timeline = cls(tuple(parts), float(metadata["rate"]))
        except (KeyError, ValueError, TypeError) as error:
            problem = f"not the rows of a data set ({error!r})"
            raise DataError(f"{path}: {problem}. {_REMEDY}") from error
        timeline.check(annotations, str(path))
        return timeline


def read_npz(path: Path, annotations: Annotations) -> Timeline:
    """Read `timeline.npz`: [n, D] of each video by its id, and a number `rate` (1 if absent)."""
    load_npz(path, ())  # refuses what is no archive
    with np.load(path, allow_pickle=False) as archive:
        names = set(archive.files)
    missing = [video.video_id for video in annotations.videos if video.video_id not in names]
    if missing:
        raise DataError(f"{path}: has no rows of video '{missing[0]}'. Save them under its id.")
    wanted = tuple(video.video_id for video in annotations.videos)
    arrays = load_npz(path, (*wanted, *({"rate"} & names)))
    remedy = f"{path.name} holds numbers [rows, D] of each video by its id, and optionally a rate."
    with np.errstate(over="ignore"), explained(path, "not such numbers", remedy, *_NO_NUMBERS):
        of_video = "rate" in wanted  # which has this name
        rate = 1.0 if of_video else float(np.asarray(arrays.get("rate", 1.0)).reshape(-1)[0])
        timeline = Timeline(tuple(arrays[name].astype(np.float16) for name in wanted), rate)
    timeline.check(annotations, str(path), remedy)
    return timeline


def row_labels(steps: Sequence[Step], rows: int, rate: float, background: int) -> NDArray[np.int64]:
    """Return the action of each of the rows of a video, or the background, [n].

    Of steps that overlap, the one that began last is shown. A step covers the rows from its rounded
    start to its rounded end, and at least one.

    Args:
        steps: Steps of the video, with times in seconds.
        rows: Number n of its rows.
        rate: Rows a second.
        background: Label of rows without a step.
    """
    labels = np.full(rows, background)
    for step in sorted(steps, key=lambda step: step.start):
        start, end = round(step.start * rate), round(step.end * rate)
        labels[start : max(start + 1, end)] = step.action
    return labels
