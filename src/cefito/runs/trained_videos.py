"""Videos that a run has seen: used for training, or for choosing its weights."""

from __future__ import annotations

from pathlib import Path

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.settings import Record, read_record

__all__ = ["VIDEOS_FILE", "TrainedVideos", "trained_videos"]

VIDEOS_FILE = "videos.json"


class TrainedVideos(Record):
    """Ids of the videos that a run has seen."""

    train: tuple[str, ...]  # videos that it was trained on
    val: tuple[str, ...]  # videos on whose windows epochs and weights were chosen

    @classmethod
    def of(cls, dataset: PreparedDataset, train: Windows, val: Windows) -> TrainedVideos:
        """Collect the videos of windows of a data set."""
        return cls(train=_ids(dataset, train), val=_ids(dataset, val))

    def with_more(self, other: TrainedVideos) -> TrainedVideos:
        """Return the videos of both; one that either was trained on counts as trained on."""
        train = {*self.train, *other.train}
        return TrainedVideos(
            train=tuple(sorted(train)), val=tuple(sorted({*self.val, *other.val} - train))
        )

    def write(self, folder: Path) -> None:
        """Write them into a run folder."""
        write_json(folder / VIDEOS_FILE, self.model_dump(mode="json"))


def trained_videos(folder: Path) -> TrainedVideos | None:
    """Return the videos that the run in a folder has seen; None if unknown (imported weights)."""
    path = folder / VIDEOS_FILE
    if not path.exists():
        return None
    remedy = "Train the run again, or remove the file."
    value = read_json(path, remedy, RunError)
    return read_record(TrainedVideos, value, f"{path}: not the videos of a run", remedy)


def _ids(dataset: PreparedDataset, windows: Windows) -> tuple[str, ...]:
    return tuple(dataset.videos[video].video_id for video in sorted(set(windows.video.tolist())))
