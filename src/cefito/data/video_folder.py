"""Where the videos of a data set lie, if it says so: beside it, as a path from its own folder."""

from __future__ import annotations

import os
from pathlib import Path

from cefito.data.prepared import PreparedDataset

__all__ = ["video_folder", "video_folder_entry"]

_KEY = "video_folder"


def video_folder(dataset: PreparedDataset) -> Path | None:
    """The folder of a data set's videos; None where it does not say. It may be gone."""
    told = dataset.provenance.get(_KEY)
    if not isinstance(told, str):
        return None
    return Path(os.path.normpath(dataset.folder.resolve() / told))


def video_folder_entry(videos: Path | None, target: Path) -> dict[str, str]:
    """What the provenance of a data set says of its videos: the way to them from its folder.

    So the two can be moved together, and no data set tells where on a machine it was made.

    Args:
        videos: Folder of the videos, or None.
        target: Folder of the data set.
    """
    if videos is None:
        return {}
    try:
        way = os.path.relpath(videos.resolve(), target.resolve())
    except ValueError:  # on another drive: there is no such way
        return {}
    return {_KEY: Path(way).as_posix()}
