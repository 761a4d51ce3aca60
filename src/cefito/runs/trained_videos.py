"""Which videos a run has seen: those it was trained on, and those its weights were chosen on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Windows, fitting_windows
from cefito.errors import DataError, RunError
from cefito.files import read_json, write_json
from cefito.runs.info import RunInfo
from cefito.settings import Record

__all__ = ["VIDEOS_FILE", "TrainedVideos", "trained_videos"]

VIDEOS_FILE = "videos.json"


class TrainedVideos(Record):
    """Ids of the videos that a run has seen.

    Attributes:
        train: Those it was trained on.
        val: Those on whose windows epochs and weights were chosen.
    """

    train: tuple[str, ...]
    val: tuple[str, ...]

    @classmethod
    def of(cls, dataset: PreparedDataset, train: Windows, val: Windows) -> TrainedVideos:
        """Those of windows of a data set."""
        return cls(train=_ids(dataset, train), val=_ids(dataset, val))

    def with_more(self, other: TrainedVideos) -> TrainedVideos:
        """Those of both; what either was trained on counts as that."""
        train = {*self.train, *other.train}
        return TrainedVideos(
            train=tuple(sorted(train)), val=tuple(sorted({*self.val, *other.val} - train))
        )

    def write(self, folder: Path) -> None:
        """Write them into a run folder."""
        write_json(folder / VIDEOS_FILE, self.model_dump(mode="json"))


def trained_videos(folder: Path, info: RunInfo) -> TrainedVideos | None:
    """The videos that a run has seen, as far as that is known.

    Runs of earlier versions do not say; theirs are those of their data set, where that still lies
    where it lay. Imported weights say nothing.

    Args:
        folder: The run folder.
        info: Its record.

    Raises:
        RunError: The file of the run is damaged.
    """
    path = folder / VIDEOS_FILE
    if path.exists():
        value: Any = read_json(path, "Train the run again.", RunError)
        try:
            return TrainedVideos.model_validate(value)
        except ValidationError as problem:
            raise RunError(
                f"{path}: does not list the videos of a run. Train the run again, or remove the "
                "file."
            ) from problem
    known = info.dataset
    if not known.fingerprint or info.selection is None:
        return None
    try:
        dataset = open_dataset(known.path)
        if dataset.fingerprint != known.fingerprint:
            return None
        train, val = fitting_windows(dataset, horizon=info.horizon, selection=info.selection)
    except DataError:
        return None
    return TrainedVideos.of(dataset, train, val)


def _ids(dataset: PreparedDataset, windows: Windows) -> tuple[str, ...]:
    return tuple(dataset.videos[video].video_id for video in sorted(set(windows.video.tolist())))
