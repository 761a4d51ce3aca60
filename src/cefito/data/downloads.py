"""Downloads of weights, annotations and features that the project does not ship.

`places.json` lists them. A file gets its name once it is complete and is the documented one.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse, responses
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from cefito.arrays import check_regular
from cefito.errors import ConfigError, DataError, explained, reason
from cefito.files import new_folder, write_atomic
from cefito.files import sha256 as file_sha256
from cefito.locks import made_folders
from cefito.progress import Progress, silent
from cefito.settings import Record

_MIB = 1 << 20
_BLOCK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte
_WEB = re.ASCII | re.IGNORECASE
_GROWTH = 100  # bytes that one byte of an archive may unpack to, besides 1 MiB
_MEMBERS = 10**6
_BROKEN = (  # errors on damaged archives
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, ValueError),
    *(ArithmeticError, RuntimeError, OSError),
)


class Place(Record):
    """A file that can be downloaded; unpublished entries are None."""

    name: str  # on the command line
    what: str  # description
    file: str  # name on the local disk
    unpack: bool  # whether it is an archive
    address: str | None
    bytes: int | None
    sha256: str | None  # in hex
    licence: str
    by_hand: str  # where to look if the address is missing or no longer works
    group: str | None = None  # name under which it is downloaded together with others


@dataclass(frozen=True)
class Downloaded:
    """Result of `download`: the file, its size and SHA-256, and the folder of an archive."""

    path: Path
    bytes: int
    sha256: str
    checked: bool  # whether a SHA-256 was known to compare with
    kept: bool  # whether the file existed before
    folder: Path | None


@cache
def places() -> dict[str, Place]:
    """All known files by name."""
    text = resources.files("cefito.data").joinpath("places.json").read_text(encoding="utf-8")
    return {entry["name"]: Place.model_validate(entry) for entry in json.loads(text)["places"]}


def find_place(name: str) -> Place:
    """Find a file by name."""
    if name not in places():
        known = dict.fromkeys(part for at in places().values() for part in (at.group, at.name))
        names = ", ".join(filter(None, known))
        raise ConfigError(f"unknown download '{name}'; expected one of: {names}.")
    return places()[name]


def find_places(name: str) -> list[Place]:
    """Find a file by name, or all files of a group."""
    return [at for at in places().values() if at.group == name] or [find_place(name)]


def download(
    name: str,
    target: Path,
    *,
    address: str | None = None,
    sha256: str | None = None,
    insecure: bool = False,
    progress: Progress = silent,
) -> Downloaded:
    """Download a file into a folder, and unpack it there if it is an archive.

    A file that exists already is checked and unpacked, but not downloaded again. `address` and
    `sha256` (in hex) replace the documented URL, and the documented size and SHA-256.
    """
    place = find_place(name)
    if sha256 is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
            raise ConfigError(f"{sha256!a}: expected 64 hexadecimal digits.", setting="sha256")
        place = place.model_copy(update={"bytes": None, "sha256": sha256.lower()})
    address = place.address if address is None else address
    if address is not None:
        _check_address(address, insecure=insecure)
    path = target / place.file
    folder = path.with_suffix("") if place.unpack else None
    unpacked = folder is not None and folder.exists()
    kept = path.exists()
    if unpacked and not kept:
        raise DataError(f"{folder}: exists already, without its archive. Move or remove it first.")
    if kept:
        digest = _check(path, place, str(path), "Remove it and try again.")
    else:
        digest = _fetch(place, path, address, progress)
    if folder is not None and not unpacked:
        _unpack(path, folder, progress)
    return Downloaded(
        path=path,
        bytes=path.stat().st_size,
        sha256=digest,
        checked=place.sha256 is not None,
        kept=kept,
        folder=folder,
    )


def _check_address(address: str, *, insecure: bool) -> None:
    # printable ASCII, without a password, perhaps with a port and a path
    found = re.fullmatch(
        r"(https?)://([\w.-]+|\[[\da-f:.]+\])(:\d{1,5})?([/?#][!-~]*)?", address, _WEB
    )
    if not found:
        expected = "expected https://HOST/PATH without a password, other letters as %XX"
        raise ConfigError(f"address {address!a}: {expected}.")
    local = found[2] in ("localhost", "127.0.0.1")
    if found[1].lower() == "http" and not insecure and not local:
        remedy = "Give one that begins with https://, or accept http explicitly."
        raise ConfigError(f"address {address!a}: is not encrypted. {remedy}", setting="insecure")


def _check(path: Path, place: Place, source: str, remedy: str) -> str:
    """Compare a file with its documented size and SHA-256; return its SHA-256."""
    check_regular(path, remedy)
    problem = ""
    size, digest = path.stat().st_size, file_sha256(path)
    if size == 0 or place.bytes not in (None, size):
        expected = "a non-empty file" if place.bytes is None else f"{place.bytes:,}"
        problem = f"{size:,} bytes; expected {expected}"
    elif place.sha256 not in (None, digest):
        problem = f"SHA-256 {digest}; expected {place.sha256}"
    if problem:
        raise DataError(f"{source}: the file has {problem}. {remedy}")
    return digest


def _fetch(place: Place, path: Path, address: str | None, progress: Progress) -> str:
    """Download a file, check it, and only then give it its name; return its SHA-256."""
    remedy = (
        f"{place.by_hand} Give its address, or save it as {path} and repeat the call to check "
        f"{'and unpack ' if place.unpack else ''}it."
    )
    if address is None:
        raise DataError(f"{place.name}: no address is documented. {remedy}", setting="address")
    digests: list[str] = []

    def fill(temporary: Path) -> None:
        with _open(address, remedy) as response, temporary.open("wb") as file:
            length = response.length  # None if the server does not say
            free = shutil.disk_usage(path.parent).free
            if length is not None and length > free:
                needs = f"{path.name} needs {length:,} bytes, but {free:,} are free"
                raise DataError(f"{path.parent}: {needs}. Choose another folder.")
            total = None if length is None else max(1, round(length / _MIB))
            with progress(f"{path.name}, MiB", total=total) as advance:
                for block in _blocks(response, address, length, remedy):
                    file.write(block)
                    advance(len(block) / _MIB)
        digests.append(_check(temporary, place, address, f"It was removed. {remedy}"))

    with (
        explained(path.parent, "cannot be created", "Choose another folder."),
        made_folders(path.parent),
    ):
        write_atomic(path, fill, DataError)
    return digests[0]


class _Redirects(request.HTTPRedirectHandler):
    """Redirections, except from an encrypted address to one that is not."""

    def redirect_request(
        self, req: request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise URLError("it redirects to an address that is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(address: str, remedy: str) -> HTTPResponse:
    headers = {"User-Agent": f"cefito/{version('cefito')}", "Accept-Encoding": "identity"}
    try:
        response: HTTPResponse = request.build_opener(_Redirects).open(
            request.Request(address, headers=headers), timeout=_TIMEOUT
        )
    except HTTPError as problem:
        problem.close()
        complaint = f"the server answers {problem.code} ({responses.get(problem.code, 'unknown')})"
    except (OSError, HTTPException, ValueError) as problem:  # a URLError is an OSError
        complaint = f"cannot be reached ({_reason(problem)})"
    else:
        if response.headers.get_content_type() != "text/html":
            return response
        response.close()
        complaint = "leads to a web page, not to the file itself"
    raise DataError(f"{address}: {complaint}. {remedy}", setting="address")


def _blocks(
    response: HTTPResponse, address: str, length: int | None, remedy: str
) -> Iterator[bytes]:
    done, stopped = 0, "the transfer stopped before the end"
    with explained(address, stopped, f"Try again. {remedy}", OSError, HTTPException):
        while block := response.read(_BLOCK):
            done += len(block)
            yield block
        if done < (length or 0):
            raise HTTPException("the server closed the connection")


def _reason(problem: Exception) -> str:
    return reason(getattr(problem, "reason", None) or problem)


def _unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a .zip or .tar.gz file into a new folder, which appears once it is complete."""
    with (
        new_folder(folder) as temporary,
        progress(f"unpacking {archive.name}") as advance,
        _damage(archive),
    ):
        if zipfile.is_zipfile(archive):
            members = _unzip(archive, temporary)
        elif tarfile.is_tarfile(archive):
            members = _untar(archive, temporary)
        else:
            raise ValueError("neither a .zip nor a .tar.gz archive")
        for _ in members:
            advance()


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """Turn errors of the standard library on damaged and unsafe archives into DataErrors."""
    try:
        yield
    except _BROKEN as problem:  # a FilterError of links, devices and names outside is one
        if isinstance(problem, OSError) and problem.errno is not None:
            raise  # the disk, not the archive
        fault = f"cannot be unpacked ({_reason(problem)})"
        raise DataError(f"{archive}: {fault}. Download it from a place you trust.") from problem


def _unzip(archive: Path, folder: Path) -> Iterator[None]:
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        size = sum(member.file_size for member in members)
        _check_growth(archive, len(members), size)
        if size > shutil.disk_usage(folder).free:
            raise ValueError("it unpacks to more bytes than the disk has free")
        for member in members:  # a name that leads out of the folder is made one within
            opened.extract(member, folder)  # zipfile writes at most the size that was declared
            yield


def _check_growth(archive: Path, members: int, size: int) -> None:
    """Refuse archives that are small and unpack to a flood."""
    if members > _MEMBERS:
        raise ValueError(f"it holds more than {_MEMBERS:,} files")
    if size > _GROWTH * archive.stat().st_size + _MIB:
        raise ValueError(f"it unpacks to more than {_GROWTH} times its size")


def _untar(archive: Path, folder: Path) -> Iterator[None]:
    with tarfile.open(archive) as opened:
        size = 0
        for number, member in enumerate(opened, 1):
            size += member.size
            _check_growth(archive, number, size)
            opened.extract(member, folder, filter="data")
            yield
        assert opened.fileobj is not None
        while opened.fileobj.read(_BLOCK):  # to the end, where gzip compares its checksum
            pass
