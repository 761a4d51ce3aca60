"""Features of many videos, one file per video; an interrupted extraction can be repeated."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import check_regular, load_npy
from cefito.encoders.frames import probe
from cefito.encoders.images import PLACES
from cefito.encoders.video import BATCH, VideoEncoder, check_batch, encode_rows, record
from cefito.errors import CefitoError, ConfigError, DataError, RunError, explained
from cefito.files import (
    append_lines,
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


def extract_videos(
    source: Path,
    target: Path,
    encoder: VideoEncoder,
    *,
    batch: int = BATCH,
    progress: Progress = silent,
) -> Extraction:
    """Encode a video, or all videos below a folder, into one `NAME.npy` each, [seconds, D].

    Files appear only when complete, so an interrupted call can be repeated: complete files are
    kept, unless the video was replaced. `extract.json` beside them records the encoder,
    `films.jsonl` the digest of each video.

    Args:
        source: A video, or a folder with videos at any depth (`SUFFIXES`).
        target: Folder to write, with the same folders as `source`.
        encoder: From `open_encoder`, or any of that form.
        batch: Clips per batch.
        progress: Shows progress in videos.

    Raises:
        ConfigError: A batch without clips, or features of another encoder in `target`.
    """
    check_batch(batch)
    names = _videos(source)
    root = source if source.is_dir() else source.parent
    targets = {name: target / Path(name).with_suffix(".npy") for name in names}
    sharing: dict[Path, list[str]] = defaultdict(list)
    for name, path in targets.items():
        sharing[path].append(name)
    _check_settings(target, record(encoder), [path for path in targets.values() if path.exists()])
    result, made_of = Extraction(), _made_of(target)
    with progress("videos", total=len(names)) as advance:
        for name, path in targets.items():
            if len(several := sharing[path]) > 1:
                both = f"{' and '.join(map(repr, several))} would be written to the same file"
                result.failed[name] = f"{root / name}: {both}. Rename or move all but one."
                advance(1)
                continue
            share, file = _Share(advance, name), path.relative_to(target).as_posix()
            try:
                with explained(root / name, "cannot be read", "Leave it out."):
                    film = sha256(root / name)
                if made_of.get(file, film) == film and _complete(path):
                    result.kept.append(name)
                    advance(1)
                    continue
                info = probe(root / name)
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


def stored_rows(folder: Path, video: Path, encoder: VideoEncoder) -> NDArray[np.float32] | None:
    """Return the features of a video [seconds, D] that `extract_videos` wrote into a folder.

    Args:
        folder: The folder, which may not exist.
        video: The file, by whose content they are found.
        encoder: Whose features they shall be.

    Returns:
        None if the folder has none, or they are damaged, or of another encoder.
    """
    settings = folder / _SETTINGS
    with suppress(CefitoError):
        if not settings.exists() or _differing(_settings(settings), record(encoder)):
            return None
        digest = sha256(video)
        for file, film in _made_of(folder).items():
            if film == digest and _complete(path := folder / file):
                return load_npy(path)
    return None


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


def _videos(source: Path) -> list[str]:
    """Return the paths of the videos below a folder, ascending, or the name of the one video."""
    if not source.is_dir():
        check_regular(source, "Give a video or a folder of them.")
        return [source.name]
    names = sorted(
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if has_ending(path, SUFFIXES) and path.is_file() and not path.name.startswith(".")
    )
    if not names:
        raise DataError(f"{source}: holds no videos. Expected endings: {', '.join(SUFFIXES)}.")
    return names


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
