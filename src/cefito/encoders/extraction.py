"""Features of many videos, one file a video.

It may be stopped at any moment and goes on when repeated.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cefito.encoders.frames import probe
from cefito.encoders.video import BATCH, VideoEncoder, encode_rows, record
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import load_npy, read_json, write_bytes, write_json
from cefito.progress import Advance, Progress, silent

__all__ = ["SUFFIXES", "Extraction", "extract_videos"]

SUFFIXES = (
    ".3gp",
    ".avi",
    ".flv",
    ".m4v",
    ".mkv",
    ".mov",
    ".mp4",
    ".mpeg",
    ".mpg",
    ".ogv",
    ".ts",
    ".webm",
    ".wmv",
)
"""Endings of the files of a folder that are taken for videos."""

_SETTINGS = "extract.json"  # beside the features: what they were made with


@dataclass(kw_only=True)
class Extraction:
    """What became of the videos of a folder, by their paths below it.

    Attributes:
        written: Videos whose features were written now.
        kept: Videos whose features were there already.
        failed: Videos that could not be read, and why.
    """

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def extract_videos(
    source: Path,
    target: Path,
    encoder: VideoEncoder,
    *,
    batch: int = BATCH,
    progress: Progress = silent,
) -> Extraction:
    """Encode a video, or all videos below a folder, into one file `NAME.npy` a video.

    Each holds float32 [seconds, D].

    Files appear only when complete, so an interrupted call can be repeated: what is there is kept.
    `extract.json` beside them says what they were made with.

    Args:
        source: A video, or a folder with videos at any depth (`SUFFIXES`).
        target: Folder to write, with the folders of `source` in it.
        encoder: From `open_encoder`, or any of that form.
        batch: Clips encoded at a time.
        progress: Told of the share of each video done.

    Raises:
        ConfigError: Two videos of one name, features in `target` made otherwise; as
            `extract_features`.
        DataError: No videos at all.
        RunError: `target` cannot be written.
    """
    names = _videos(source)
    root = source if source.is_dir() else source.parent
    targets = {name: target / Path(name).with_suffix(".npy") for name in names}
    _same_settings(
        target, record(encoder), taken=[path for path in targets.values() if path.exists()]
    )
    result = Extraction()
    with progress("videos", total=len(names)) as advance:
        for name, path in targets.items():
            if _complete(path):
                result.kept.append(name)
                advance(1)
                continue
            done = _Share(advance, name)
            try:
                info = probe(root / name)
                done.total = info.seconds
                vectors = encode_rows(info, range(info.seconds), encoder, batch, done)
            except DataError as problem:
                result.failed[name] = str(problem)
            else:
                _folder(path.parent)
                buffer = io.BytesIO()
                np.save(buffer, vectors)
                write_bytes(path, buffer.getvalue())
                result.written.append(name)
            done.finish()
    return result


class _Share:
    """Turns seconds of one video into shares of it."""

    def __init__(self, advance: Advance, name: str) -> None:
        self.advance, self.name, self.total, self.reported = advance, name, 1, 0.0

    def __call__(self, count: float = 1, *, note: str = "") -> None:  # noqa: ARG002
        self.reported += count / self.total
        self.advance(count / self.total, note=self.name)

    def finish(self) -> None:
        self.advance(1 - self.reported, note=self.name)  # what was left out, and the rounding


def _videos(source: Path) -> list[str]:
    """Paths of the videos below a folder, or the name of the one video, ascending."""
    if not source.is_dir():
        if not source.exists():
            raise DataError(
                f"{source}: no such file or folder. Give a video or a folder of videos."
            )
        return [source.name]
    names = sorted(
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not names:
        raise DataError(
            f"{source}: holds no videos. Expected files that end in {', '.join(SUFFIXES)}."
        )
    stems: dict[str, str] = {}
    for name in names:
        other = stems.setdefault(str(Path(name).with_suffix("")), name)
        if other != name:
            raise ConfigError(
                f"{source}: '{other}' and '{name}' would be written to the same file. Rename or "
                "move one."
            )
    return names


def _same_settings(target: Path, settings: dict[str, Any], *, taken: list[Path]) -> None:
    """Write `extract.json`, or see that it says the same."""
    path = target / _SETTINGS
    if not path.exists():
        if taken:
            raise ConfigError(
                f"{taken[0]}: is there, but {path}, which would say what it was made with, is not. "
                "Choose another folder or move it away."
            )
        _folder(target)
        write_json(path, settings)
        return
    found = read_json(
        path, "Choose another folder, or remove this file and the features beside it."
    )
    found = found if isinstance(found, dict) else {}
    for name in (*settings, *found):
        if found.get(name) != settings.get(name):
            raise ConfigError(
                f"{path}: the features there were made with {name} = {found.get(name)}, not "
                f"{settings.get(name)}. Choose another folder, or remove it."
            )


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(
            f"{path}: cannot be made ({problem.strerror}). Choose another folder."
        ) from problem


def _complete(path: Path) -> bool:
    """Whether a file holds features of at least one second; a damaged one is made again."""
    if not path.exists():
        return False
    try:
        vectors = load_npy(path)
    except DataError:
        return False
    return vectors.ndim == 2 and vectors.dtype == np.float32 and vectors.size > 0
