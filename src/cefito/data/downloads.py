"""Downloads of weights, annotations and features that the project does not ship.

`places.json` lists them. A file gets its name once it is complete and is the documented one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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

from cefito.errors import ConfigError, DataError, explained, reason
from cefito.files import check_regular, write_atomic
from cefito.files import sha256 as file_sha256
from cefito.locks import made_folders
from cefito.progress import Progress, silent
from cefito.settings import Record

_MIB = 1 << 20
_BLOCK = 1 << 18
TIMEOUT = 60.0  # seconds without a byte


class Place(Record):
    """A file that can be downloaded; unpublished entries are None."""

    name: str  # on the command line
    what: str  # description
    file: str  # name on the local disk
    address: str | None
    bytes: int | None
    sha256: str | None  # in hex
    licence: str
    by_hand: str  # where to look if the address is missing or no longer works
    group: str | None = None  # name under which it is downloaded together with others


@dataclass(frozen=True)
class Downloaded:
    """Result of `download`: the file, its size and SHA-256."""

    path: Path
    bytes: int
    sha256: str
    checked: bool  # whether a SHA-256 was known to compare with
    kept: bool  # whether the file existed before


@cache
def places() -> dict[str, Place]:
    """All known files by name."""
    text = resources.files("cefito.data").joinpath("places.json").read_text(encoding="utf-8")
    return {entry["name"]: Place.model_validate(entry) for entry in json.loads(text)["places"]}


def find_place(name: str) -> Place:
    """Find a file by name."""
    if name not in places():
        choices = dict.fromkeys(label for at in places().values() for label in (at.group, at.name))
        names = ", ".join(filter(None, choices))
        raise ConfigError(f"unknown download '{name}'; expected one of: {names}.")
    return places()[name]


def find_places(name: str) -> list[Place]:
    """Find a file by name, or all files of a group."""
    return [at for at in places().values() if at.group == name] or [find_place(name)]


def download(name: str, target: Path, *, progress: Progress = silent) -> Downloaded:
    """Download a file into a folder; one that exists already is only checked.

    Args:
        name: Name of the file, as `find_place` knows it.
        target: Folder.
        progress: Shows progress.
    """
    place = find_place(name)
    path = target / place.file
    kept = path.exists()
    if kept:
        digest = _check(path, place, str(path), "Remove it and try again.")
    else:
        digest = _fetch(place, path, progress)
    size, checked = path.stat().st_size, place.sha256 is not None
    return Downloaded(path=path, bytes=size, sha256=digest, checked=checked, kept=kept)


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


def _fetch(place: Place, path: Path, progress: Progress) -> str:
    """Download a file, check it, and only then give it its name; return its SHA-256."""
    address = place.address
    remedy = f"{place.by_hand} Save it as {path} and repeat the call to check it."
    if address is None:
        raise DataError(f"{place.name}: no address is documented. {remedy}")
    digests: list[str] = []

    def fill(temporary: Path) -> None:
        with _open(address, remedy) as response, temporary.open("wb") as file:
            length = response.length  # None if the server does not say
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
            request.Request(address, headers=headers), timeout=TIMEOUT
        )
    except HTTPError as problem:
        problem.close()
        complaint = f"the server answers {problem.code} ({responses.get(problem.code, 'unknown')})"
    except (OSError, HTTPException, ValueError) as problem:  # a URLError is an OSError
        complaint = f"cannot be reached ({reason(getattr(problem, 'reason', None) or problem)})"
    else:
        if response.headers.get_content_type() != "text/html":
            return response
        response.close()
        complaint = "leads to a web page, not to the file itself"
    raise DataError(f"{address}: {complaint}. {remedy}")


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
