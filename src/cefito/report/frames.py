"""Frames of a data set's videos for the gallery."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cefito.data.prepared import PreparedDataset
from cefito.data.readers.feature_files import FileFolder
from cefito.errors import ConfigError, DataError
from cefito.markup import counted
from cefito.progress import Progress, silent
from cefito.report.schema import GalleryQuery

EACH = 6_000
"""Maximum bytes of a frame."""
TOTAL = 3_000_000
"""Maximum bytes of all frames in a report; many frames have a lower quality."""
_LEAST = 1_200  # minimum bytes of a recognisable frame


@dataclass(frozen=True)
class VideoFiles:
    """The files of the videos of a data set, by ids."""

    paths: dict[str, Path] = field(default_factory=dict)
    note: str = ""  # why there are none at all; else empty


def find_video_files(dataset: PreparedDataset, folder: Path | None = None) -> VideoFiles:
    """Find the files of a data set's videos, by default in the folder that it names.

    Names are matched like names of features. A file that matches several ids belongs to the
    longest; a video that matches several files has none.
    """
    place = folder or dataset.video_folder
    if place is None:
        simulated = dataset.provenance.get("observations") == "simulated"
        return VideoFiles(
            note="There are no frames: the observations are simulated."
            if simulated
            else "There are no frames: the data set does not name the folder of its videos."
        )
    try:
        return VideoFiles(films_in(place, (video.video_id for video in dataset.videos)))
    except ConfigError as problem:
        if folder is not None:
            raise ConfigError(str(problem), setting="videos") from problem
        return VideoFiles(
            note=f"There are no frames: the data set's video folder {place.name} has no videos."
        )


def films_in(folder: Path, videos: Iterable[str]) -> dict[str, Path]:
    """Find the video files of names in a folder (ConfigError without any file)."""
    from cefito.encoders.extraction import SUFFIXES

    try:
        files = FileFolder(folder, endings=SUFFIXES, kind="video file")
    except DataError as problem:
        raise ConfigError(str(problem), setting="films") from problem
    return files.owned({video: (video,) for video in videos})


def with_frames(
    queries: Sequence[GalleryQuery], files: VideoFiles, *, progress: Progress = silent
) -> tuple[list[GalleryQuery], str]:
    """Queries with frames of their start and goal, and a note if some have none.

    Args:
        queries: The queries.
        files: Video files by id.
        progress: Shows how many videos were read.
    """
    there = [number for number, query in enumerate(queries) if query.video in files.paths]
    if not there:
        missing = "none of the videos has a file" if queries else "there are no windows"
        return list(queries), files.note or f"There are no frames: {missing}."
    # characters of the least bytes in base64, of two frames each
    chosen = there[: TOTAL // (2 * (-(-_LEAST // 3) * 4))]
    most = min(EACH, TOTAL // (2 * len(chosen)) // 4 * 3)
    wanted: dict[str, list[int]] = defaultdict(list)
    for number in chosen:
        wanted[queries[number].video].append(number)
    framed, broken = list(queries), list[str]()
    with progress("frames", total=len(chosen)) as advance:
        for video, numbers in wanted.items():
            moments = [
                time for place in numbers for time in (queries[place].start, queries[place].end)
            ]
            try:
                pictures = _pictures(files.paths[video], moments, most)
            except DataError as problem:
                broken.append(str(problem))
            else:
                for place in numbers:
                    query = queries[place]
                    frames = pictures[query.start], pictures[query.end]
                    framed[place] = query.model_copy(update={"frames": frames})
            advance(len(numbers))
    return framed, _missing(len(queries), len(there), len(chosen), broken)


def _pictures(path: Path, moments: Iterable[float], most: int) -> dict[float, str]:
    from cefito.encoders.frames import thumbnails

    times = sorted({max(0.0, time) for time in moments})
    made = {
        time: base64.b64encode(picture).decode()
        for time, picture in thumbnails(path, times, most=most)
    }
    return {time: made[max(0.0, time)] for time in moments}


def _missing(queries: int, there: int, chosen: int, broken: Sequence[str]) -> str:
    reasons = []
    if there < queries:
        reasons.append(
            f"{queries - there} of {queries} queries have no frames: no file of their video."
        )
    if chosen < there:
        first = counted(chosen, "query", "queries")
        reasons.append(f"Only the first {first} got frames, to keep the file small.")
    if broken:
        reasons.append(f"{counted(len(broken), 'video')} cannot be read; the first: {broken[0]}")
    return " ".join(reasons)
