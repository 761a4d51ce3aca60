"""Fetching what the project does not ship: weights, annotations and features.

Each has a name that `places.json` knows.

A file gets its name only when it is whole and has the documented size and hash, as far as these are
documented.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cefito.data.downloads.transfer import check_address, fetch, forget
from cefito.data.downloads.unpack import unpack
from cefito.errors import ConfigError, DataError
from cefito.files import sha256 as hash_of
from cefito.locks import made_folders
from cefito.progress import Progress, silent

__all__ = ["Downloaded", "Place", "download", "find_place", "places"]


class Place(BaseModel):
    """A file that can be fetched.

    Attributes:
        name: What it is called here.
        what: What it is.
        file: Its name on this disk.
        unpack: Whether it is an archive, unpacked beside itself into a folder of its name without
            the suffix.
        address: Where it lies, where that is documented.
        bytes: Its size, where that is documented.
        sha256: Its SHA-256 in hex, where that is documented.
        licence: Under which licence, in words.
        by_hand: Where to look when there is no address, or nothing there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    what: str
    file: str
    unpack: bool
    address: str | None
    bytes: int | None
    sha256: str | None
    licence: str
    by_hand: str


@dataclass(frozen=True)
class Downloaded:
    """What `download` did.

    Attributes:
        path: The file.
        bytes: Its size.
        sha256: Its SHA-256 in hex.
        checked: Whether a hash was known to compare with.
        kept: Whether it was there already.
        folder: Where it is unpacked, None for what is no archive.
    """

    path: Path
    bytes: int
    sha256: str
    checked: bool
    kept: bool
    folder: Path | None


@cache
def places() -> dict[str, Place]:
    """All places by their names."""
    text = (
        resources.files("cefito.data.downloads").joinpath("places.json").read_text(encoding="utf-8")
    )
    return {entry["name"]: Place.model_validate(entry) for entry in json.loads(text)["places"]}


def find_place(name: str) -> Place:
    """A place by its name.

    Raises:
        ConfigError: There is none; the message names them all.
    """
    if name not in places():
        raise ConfigError(
            f"nothing to download is called '{name}'; expected one of: {', '.join(places())}."
        )
    return places()[name]


def download(
    name: str,
    target: Path,
    *,
    address: str | None = None,
    sha256: str | None = None,
    insecure: bool = False,
    progress: Progress = silent,
) -> Downloaded:
    """Fetch a file into a folder, going on where an earlier call stopped.

    Archives are unpacked beside it.

    A file that is there already, from an earlier call or put there by hand, is checked and
    unpacked, not fetched.

    Args:
        name: Name of a place.
        target: Folder to write into; it is made if need be.
        address: Where the file lies, in the place of the documented address.
        sha256: SHA-256 that the file must have, in hex, in the place of documented size and hash.
        insecure: Take an address without encryption (http).
        progress: Shows the transfer, in MiB, and the unpacking, in files.

    Raises:
        ConfigError: Unknown name, an address that is none of the web, or what is no SHA-256.
        DataError: The place is gone or cannot be reached (the message says how to go on by hand),
            the transfer stopped, the file is not the documented one, the archive is damaged or
            unsafe, or the disk is full.
    """
    place = find_place(name)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ConfigError(f"SHA-256 {sha256!a}: expected 64 hexadecimal digits.", setting="sha256")
    size, digest = (place.bytes, place.sha256) if sha256 is None else (None, sha256.lower())
    address = place.address if address is None else address
    if address is not None:
        check_address(address, insecure=insecure)
    path = target / place.file
    folder = path.with_suffix("") if place.unpack else None
    unpacked = (
        folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    )
    kept = path.exists()
    if kept:
        found = _check(path, size, digest, f"{path}", "Remove it and call this again.")
    elif unpacked:
        raise DataError(
            f"{folder}: exists already, without the archive it came from. Choose another folder, "
            "or remove it to fetch it anew."
        )
    else:
        found = _fetch(place, path, address, size, digest, progress)
    if folder is not None and not unpacked:
        unpack(path, folder, progress=progress)
    return Downloaded(
        path=path,
        bytes=path.stat().st_size,
        sha256=found,
        checked=digest is not None,
        kept=kept,
        folder=folder,
    )


def _fetch(
    place: Place,
    path: Path,
    address: str | None,
    size: int | None,
    digest: str | None,
    progress: Progress,
) -> str:
    remedy = (
        f"{place.by_hand} Give its address, or save it as {path} and call this "
        f"again to check {'and unpack ' if place.unpack else ''}it."
    )
    if address is None:
        raise DataError(f"{place.name}: no address is documented here. {remedy}", setting="address")
    part = path.with_name(f".{path.name}.part")
    with ExitStack() as stack:
        try:
            stack.enter_context(made_folders(path.parent))
        except OSError as problem:
            raise DataError(
                f"{path.parent}: cannot be made ({problem.strerror}). Choose another folder."
            ) from problem
        fetch(address, part, remedy=remedy, size=size, title=path.name, progress=progress)
    try:
        found = _check(part, size, digest, address, f"It was removed. {remedy}")
    except DataError:
        forget(part)
        raise
    try:
        part.replace(path)
        forget(part)
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be written ({problem.strerror}). Choose another folder."
        ) from problem
    return found


def _check(path: Path, size: int | None, digest: str | None, source: str, remedy: str) -> str:
    """Compare a file with what is known of it; gives its SHA-256."""
    try:
        there, found = path.stat().st_size, hash_of(path)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror}). {remedy}") from problem
    if there == 0 or size not in (None, there):
        wanted = "more than none" if size is None else f"{size:,}"
        raise DataError(f"{source}: the file has {there:,} bytes; expected {wanted}. {remedy}")
    if digest not in (None, found):
        raise DataError(f"{source}: the file has SHA-256 {found}; expected {digest}. {remedy}")
    return found
