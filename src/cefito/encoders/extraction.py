"""Features of many videos, one file per video; an interrupted extraction can be repeated."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cefito.arrays import check_regular, load_npy
from cefito.encoders.frames import part_of, probe
from cefito.encoders.images import PLACES
from cefito.encoders.video import BATCH, VideoEncoder, check_batch, encode_rows, record
from cefito.errors import ConfigError, DataError, RunError, explained
from cefito.files import has_ending, read_json, write_bytes, write_json
from cefito.progress import Advance, Progress, silent

SUFFIXES = (
    *(".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4"),
    *(".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".vob", ".webm", ".wmv"),
)
"""Endings of the files of a folder that count as videos, also in capitals."""

_SETTINGS = "extract.json"  # beside the features: their encoder and sampling


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
    kept. `extract.json` beside them records the encoder.

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
    result, look = Extraction(), lru_cache(maxsize=1)(probe)
    with progress("videos", total=len(videos)) as advance:
        for name, path in targets.items():
            if len(several := sharing[path]) > 1:
                both = f"{' and '.join(map(repr, several))} would be written to the same file"
                result.failed[name] = f"{videos[name][0]}: {both}. Rename or move all but one."
                advance(1)
                continue
            if _complete(path):
                result.kept.append(name)
                advance(1)
                continue
            share = _Share(advance, name)
            try:
                file, part = videos[name]
                info = look(file) if part is None else part_of(look(file), *part)
                share.seconds = info.seconds
                vectors = encode_rows(info, range(info.seconds), encoder, batch, share)
            except DataError as problem:
                result.failed[name] = str(problem)
            else:
                _make_folder(path.parent)
                buffer = io.BytesIO()
                np.save(buffer, vectors)
                write_bytes(path, buffer.getvalue())
                result.written.append(name)
            advance(1 - share.done, note=name)  # the rest of a failed video, and rounding
    return result


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
    remedy = "Choose another folder, or remove this file and the features beside it."
    written = read_json(path, remedy)
    written = written if isinstance(written, dict) else {}
    for name in filter(lambda name: name not in PLACES, {**settings, **written}):  # may have moved
        if written.get(name) != settings.get(name):
            both = f"{name} = {written.get(name)}, not {settings.get(name)}"
            raise ConfigError(f"{path}: the features there were made with {both}. {remedy}")


def _make_folder(path: Path) -> None:
    with explained(path, "cannot be made", "Choose another folder.", error=RunError):
        path.mkdir(parents=True, exist_ok=True)


def _complete(path: Path) -> bool:
    """Return whether a file holds features of at least one second; a damaged one is remade."""
    with suppress(DataError):
        vectors = load_npy(path)
        return vectors.ndim == 2 and vectors.dtype == np.float32 and vectors.size > 0
    return False
