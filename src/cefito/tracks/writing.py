"""Tracks written as a file of a format, or as one file a video in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cefito.errors import ConfigError
from cefito.files import check_target, file_names, write_text
from cefito.tracks.document import Format
from cefito.tracks.formats import WRITERS
from cefito.tracks.track import Track


def format_of(out: Path, name: str | None, count: int) -> Format:
    """Return the format of a file or of a folder of files.

    Args:
        out: File, whose ending is its format, or folder.
        name: Name of the format; by the ending of the file if None.
        count: Number of videos.

    Raises:
        ConfigError: No format has the ending, or one of its files holds one video alone.
    """
    endings = {writer.ending: writer for writer in WRITERS.values()}
    writer = endings.get(out.suffix) if name is None else WRITERS.get(name)
    if writer is None:
        expected = f"a file that ends in {', '.join(sorted(endings))}, or --format"
        raise ConfigError(f"--out {out}: expected {expected} ({', '.join(sorted(WRITERS))}).")
    if is_folder(out):
        return writer
    if writer.single and count > 1:
        problem = f"holds one video, not {count}. Give a folder, and --format"
        raise ConfigError(f"--out {out}: a file of this format {problem}.")
    check_target(out, (writer.ending,), "out")
    return writer


def is_folder(out: Path) -> bool:
    """Whether a target is a folder: one that is there, or a name without an ending."""
    return out.is_dir() or not out.suffix


def write_tracks(
    tracks: Sequence[Track], out: Path, writer: Format, *, frame_rate: float | None = None
) -> None:
    """Write one file, or into a folder one of each video, with what the format has beside them.

    Args:
        tracks: The tracks.
        out: File, or folder.
        writer: The format.
        frame_rate: Frames a second, of formats that count them.

    Raises:
        ConfigError: The rate is needed and not given, or the format cannot hold the tracks.
    """
    files = {out: writer.text(tracks, frame_rate)} if not is_folder(out) else {}
    if is_folder(out):
        names = file_names([track.video for track in tracks])
        for track in tracks:
            path = out / writer.folder / f"{names[track.video]}{writer.ending}"
            files[path] = writer.text([track], frame_rate)
        files |= {out / path: text for path, text in writer.beside(tracks).items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
