"""Manifest of a run folder: the hash of every file for planning, checked on opening."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from cefito.errors import RunError
from cefito.files import file_digest, read_json, write_json
from cefito.settings import Record, read_record

__all__ = ["MANIFEST", "Manifest", "check_manifest", "read_manifest", "recorded"]

MANIFEST = "manifest.json"
_REMEDY = "Copy the run again from an intact source, or train it again."


def _plain(name: str) -> str:
    if Path(name).name != name or "\\" in name or name.startswith(".") or set(name) & set("*?["):
        raise ValueError("expected the name of a file beside it")
    return name


_Name = Annotated[str, AfterValidator(_plain)]


class Manifest(Record):
    """Content of `manifest.json`."""

    format_version: Literal[1] = 1
    files: dict[_Name, str]  # SHA-256 of each file of the run, by its name


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Write the manifest of all files that are written into a folder within the context.

    It is written last. Files of an earlier manifest that are not written again stay in it; if the
    context ends early, that manifest makes opening refuse the folder.
    """
    before = _states(folder)
    kept = read_manifest(folder / MANIFEST).files if MANIFEST in before else {}
    yield
    now = _states(folder)
    files = {name: digest for name, digest in kept.items() if name in now}
    files |= {name: file_digest(folder / name) for name in now if before.get(name) != now[name]}
    manifest = Manifest(files=dict(sorted(files.items())))
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of each file of a folder by its name, to see which were replaced."""
    files = {path.name: path.stat() for path in folder.iterdir() if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in files.items()}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest (RunError if it is missing or damaged)."""
    value = read_json(path, _REMEDY, RunError)
    return read_record(Manifest, value, f"{path}: not a manifest of this version", _REMEDY)


def check_manifest(folder: Path, needed: tuple[str, ...]) -> Manifest | None:
    """Check that a run's files are as they were written; return its manifest, None if none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_manifest(path)
    for name in needed:
        if name not in manifest.files:
            raise RunError(f"{path}: lists no hash of {name}. {_REMEDY}")
    for name, digest in manifest.files.items():
        part = folder / name
        if not part.is_file():
            raise RunError(f"{part}: no such file, but {path} lists it. {_REMEDY}")
        if file_digest(part) != digest:
            raise RunError(
                f"{part}: has changed since the run was written (its SHA-256 differs from "
                f"{MANIFEST}). {_REMEDY}"
            )
    return manifest
