"""Features of many videos, one file per video, which are found again by a video's content.

An interrupted extraction can be repeated.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import load_npy
from cefito.encoders.frames import part_of, probe
from cefito.encoders.images import PLACES
from cefito.encoders.video import BATCH, VideoEncoder, check_batch, encode_rows, record
from cefito.errors import CefitoError, ConfigError, DataError, RunError, explained
from cefito.files import (
    append_lines,
    check_regular,
    has_ending,
    read_json,
    read_text,
    sha256,
    write_bytes,
    write_json,
)
from cefito.progress import Advance, Progress, silent

SUFFIXES = (
    *(".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4"),
    *(".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".vob", ".webm", ".wmv"),
)
"""Endings of the files of a folder that count as videos, also in capitals."""

_SETTINGS = "extract.json"  # beside the features: their encoder and sampling
_FILMS = "films.jsonl"  # beside them: which video each is of
_REMOVE = "Choose another folder, or remove this file and the features beside it."


@dataclass(kw_only=True)
class Extraction:
    """Outcome of an extraction; videos are named by their paths in the folder."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # whose features existed
    failed: dict[str, str] = field(default_factory=dict)  # that could not be used, and why


Parts = Mapping[str, tuple[Path, tuple[float, float] | None]]
"""File of each video, and start and end, in seconds of the file's clock, if it is a part of it."""


def extract_videos(
    source: Path | Parts,
    target: Path,
    encoder: VideoEncoder,
    *,
    camera: str | None = None,
    batch: int = BATCH,
    progress: Progress = silent,
) -> Extraction:
    """Encode a video, or all videos below a folder, into one `NAME.npy` each, [seconds, D].

    Files appear only when complete, so an interrupted call can be repeated: complete files are
    kept, unless the video was replaced. `extract.json` beside them records the encoder,
    `films.jsonl` the digest of each video.

    Args:
        source: A video, a folder with videos at any depth (`SUFFIXES`), or parts of files by name.
        target: Folder to write, with the same folders as `source`.
        encoder: From `open_encoder`, or any of that form.
        camera: Name of the camera of all videos, which is recorded.
        batch: Clips per batch.
        progress: Shows progress in videos.

    Raises:
        ConfigError: A batch without clips, or features of another encoder in `target`.
    """
    check_batch(batch)
    videos = _videos(source) if isinstance(source, Path) else source
    targets = {name: target / Path(name).with_suffix(".npy") for name in videos}
    sharing: dict[Path, list[str]] = defaultdict(list)
    for name, path in targets.items():
        sharing[path].append(name)
    settings = record(encoder) | ({} if camera is None else {"camera": camera})
    _check_settings(target, settings, [path for path in targets.values() if path.exists()])
    result, made_of, look = Extraction(), _made_of(target), lru_cache(maxsize=1)(probe)
    with progress("videos", total=len(videos)) as advance:
        for name, path in targets.items():
            if len(several := sharing[path]) > 1:
                both = f"{' and '.join(map(repr, several))} would be written to the same file"
                result.failed[name] = f"{videos[name][0]}: {both}. Rename or move all but one."
                advance(1)
                continue
            share, file = _Share(advance, name), path.relative_to(target).as_posix()
            try:
                place, part = videos[name]
                film = _digest(place, part)
                if made_of.get(file, film) == film and _complete(path):
                    result.kept.append(name)
                    advance(1)
                    continue
                info = look(place) if part is None else part_of(look(place), *part)
                share.seconds = info.seconds
                vectors = encode_rows(info, range(info.seconds), encoder, batch, share)
            except DataError as problem:
                result.failed[name] = str(problem)
            else:
                _make_folder(path.parent)
                buffer = io.BytesIO()
                np.save(buffer, vectors)
                write_bytes(path, buffer.getvalue())
                append_lines(target / _FILMS, [json.dumps({"file": file, "sha256": film})])
                result.written.append(name)
            advance(1 - share.done, note=name)  # the rest of a failed video, and rounding
    return result


def stored_rows(
    folder: Path, video: Path, encoder: VideoEncoder, part: tuple[float, float] | None = None
) -> NDArray[np.float32] | None:
    """Return the features of a video [seconds, D] that `extract_videos` wrote into a folder.

    Args:
        folder: The folder, which may not exist.
        video: The file, by whose content they are found.
        encoder: Whose features they shall be.
        part: Start and end of a part of it, in seconds of the file's clock.

    Returns:
        None if the folder has none, or they are damaged, or of another encoder.
    """
    settings = folder / _SETTINGS
    with suppress(CefitoError):
        written = _settings(settings) if settings.exists() else {}
        written.pop("camera", None)  # the content of the film decides
        if _differing(written, record(encoder)):
            return None
        digest = _digest(video, part)
        for file, film in _made_of(folder).items():
            if film == digest and _complete(path := folder / file):
                return load_npy(path)
    return None


def _digest(path: Path, part: tuple[float, float] | None) -> str:
    """Return the SHA-256 of a video, in hex, with the part that is meant (DataError)."""
    with explained(path, "cannot be read", "Leave it out."):
        state = path.stat()
        content = _content(path, state.st_size, state.st_mtime_ns)
    return content if part is None else f"{content}, {part[0]} to {part[1]} s"


@lru_cache(maxsize=64)
def _content(path: Path, *_: int) -> str:
    return sha256(path)


def _made_of(folder: Path) -> dict[str, str]:
    """Return the digest of the video that each file of features was made of, where known."""
    path = folder / _FILMS
    if not path.exists():
        return {}
    with explained(
        path, "not as cefito extract writes it", _REMOVE, KeyError, TypeError, ValueError
    ):
        lines = map(json.loads, read_text(path, _REMOVE).splitlines())
        return {str(line["file"]): str(line["sha256"]) for line in lines}  # the last one counts


class _Share:
    """Reports seconds of one video as shares of it."""

    def __init__(self, advance: Advance, name: str) -> None:
        self.advance, self.name, self.seconds, self.done = advance, name, 1, 0.0

    def __call__(self, count: float = 1, *, note: str = "") -> None:  # noqa: ARG002
        self.done += count / self.seconds
        self.advance(count / self.seconds, note=self.name)


def _videos(source: Path) -> Parts:
    """Return the videos below a folder by their paths in it, ascending, or the one video."""
    if not source.is_dir():
        check_regular(source, "Give a video or a folder of them.")
        return {source.name: (source, None)}
    names = sorted(
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if has_ending(path, SUFFIXES) and path.is_file() and not path.name.startswith(".")
    )
    if not names:
        raise DataError(f"{source}: holds no videos. Expected endings: {', '.join(SUFFIXES)}.")
    return {name: (source / name, None) for name in names}


def _check_settings(target: Path, settings: dict[str, Any], existing: list[Path]) -> None:
    """Write `extract.json`, or refuse one that says something else."""
    path = target / _SETTINGS
    if not path.exists():
        if existing:
            raise ConfigError(f"{existing[0]}: exists without {path}. Choose another folder.")
        _make_folder(target)
        write_json(path, settings)
        return
    written = _settings(path)
    for name in _differing(written, settings):
        both = f"{name} = {written.get(name)}, not {settings.get(name)}"
        raise ConfigError(f"{path}: the features there were made with {both}. {_REMOVE}")


def _settings(path: Path) -> dict[str, Any]:
    written = read_json(path, _REMOVE)
    return written if isinstance(written, dict) else {}


def _differing(written: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the settings, of those that decide what features say, that are not equal."""
    names = [name for name in {**settings, **written} if name not in PLACES]  # may have moved
    return [name for name in names if written.get(name) != settings.get(name)]


def _make_folder(path: Path) -> None:
    with explained(path, "cannot be made", "Choose another folder.", error=RunError):
        path.mkdir(parents=True, exist_ok=True)


def _complete(path: Path) -> bool:
    """Return whether a file holds features of at least one second; a damaged one is remade."""
    with suppress(DataError):
        vectors = load_npy(path)
        return vectors.ndim == 2 and vectors.dtype == np.float32 and vectors.size > 0
    return False
