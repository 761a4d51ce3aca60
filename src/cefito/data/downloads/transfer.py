"""One file over HTTP, into a partial file that a later call continues.

Beside the partial file stands what the server called its version of the whole (`.json`). A later
call asks for the rest of that very version (`Range` with `If-Range`, RFC 9110, sections 13.1.5 and
14); a server that has another one by then, or that knows no ranges, sends the whole, and the file
is begun anew. A version without a name is never continued.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from contextlib import closing
from dataclasses import asdict, dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from cefito.errors import ConfigError, DataError
from cefito.files import write_json
from cefito.progress import Progress, silent

__all__ = ["MIB", "check_address", "fetch", "forget", "need_space"]

MIB = 1 << 20
_BLOCK = 1 << 18
_SILENCE = 60.0
"""Seconds without a byte after which a transfer is given up."""
_REFUSALS = {
    401: "it wants a login",
    403: "it refuses the file",
    404: "it has no such file",
    410: "the file is gone",
}


class _OtherVersion(Exception):  # noqa: N818
    """The server has not the rest of the version that was begun."""


@dataclass(frozen=True)
class _Version:
    """What a partial file is a part of.

    Attributes:
        address: SHA-256 of the address.
        validator: The server's name for this version (a strong ETag, or Last-Modified); None where
            it gave none.
        total: Bytes of the whole; None where the server did not say.
    """

    address: str
    validator: str | None
    total: int | None


def check_address(address: str, *, insecure: bool = False) -> None:
    """Refuse what is not an address of the web.

    Args:
        address: The address.
        insecure: Take http as well, which anyone on the way can read and change.

    Raises:
        ConfigError: Not https, no host, a password in it, or characters that must be written as
            %XX.
    """
    try:
        parts = urlsplit(address)
        good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and parts.port != 0
            and address.isascii()
            and address.isprintable()
            and " " not in address
        )
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"address {address!a}: expected one that begins with http:// or https://, without a "
            "password, and with spaces and letters beyond ASCII written as %XX."
        )
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")  # which nobody stands between
    if parts.scheme != "https" and not insecure and not here:
        raise ConfigError(
            f"address {address}: is not encrypted, so that anyone on the way can change the file. "
            "Give one that begins with https://, or say that http will do.",
            setting="insecure",
        )


def need_space(folder: Path, needed: int, what: str) -> None:
    """Check that a disk has room.

    Raises:
        DataError: It has less; nothing was written.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder}: {what} needs {needed / MIB:,.0f} MiB, but {free / MIB:,.0f} MiB are free. "
            "Free some disk space or choose another folder."
        )


def forget(part: Path) -> None:
    """Remove a partial file and what is known of it."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def fetch(
    address: str,
    part: Path,
    *,
    title: str,
    remedy: str,
    size: int | None = None,
    progress: Progress = silent,
) -> None:
    """Load a file into `part`, going on where an earlier call stopped.

    Args:
        address: An address that `check_address` accepts.
        part: Where to write; holds the whole file afterwards. Its folder must exist.
        title: What the file is called.
        remedy: What to do where the address leads nowhere: the end of the message.
        size: Bytes of the file, if documented.
        progress: Shows the transfer, in MiB.

    Raises:
        DataError: The place is gone or cannot be reached, sends something else, stops too early, or
            the disk is full. What came of a transfer that stopped is kept.
    """
    key = hashlib.sha256(address.encode()).hexdigest()
    try:
        begun = _begun(part, key)
        have = part.stat().st_size if begun else 0
        if begun and have == begun.total:
            return
        try:
            response = _open(address, remedy, begun, have)
        except _OtherVersion:
            begun, have = None, 0
            response = _open(address, remedy)
        with closing(response):
            if begun is None or response.status == 200:
                have = 0
                begun = _Version(key, _validator(response.headers), _length(response.headers))
            total = size if begun.total is None else begun.total
            if size not in (None, total):
                raise DataError(
                    f"{address}: announces {total:,} bytes, but {size:,} are documented: another "
                    f"file lies there now. {remedy}",
                    setting="address",
                )
            need_space(part.parent, (total or have) - have, title)
            if not have:
                forget(part)
                write_json(_notes(part), asdict(begun))
            _receive(response, part, have, total, address, title, progress)
    except OSError as problem:
        raise DataError(
            f"{part}: could not be written ({problem.strerror or problem}); what came so far is "
            "kept. Free some disk space or choose another folder, then call it again."
        ) from problem


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _begun(part: Path, key: str) -> _Version | None:
    """The version that `part` holds some of; None where it cannot be continued."""
    try:
        value = json.loads(_notes(part).read_text(encoding="utf-8"))
        begun = _Version(value["address"], value["validator"], value["total"])
        size = part.stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    total = begun.total
    if (
        begun.address != key
        or not size
        or not isinstance(total, int | None)
        or size > (size if total is None else total)
    ):
        return None
    return begun if isinstance(begun.validator, str) or size == total else None


def _open(address: str, remedy: str, begun: _Version | None = None, have: int = 0) -> HTTPResponse:
    """Ask for a file, or for the rest of the version that was begun.

    The answer is 200, or 206 with that rest.

    Raises:
        DataError: There is no such answer.
        _OtherVersion: The rest is not to be had.
    """
    headers = {"User-Agent": f"cefito/{version('cefito')}", "Accept-Encoding": "identity"}
    if begun and begun.validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": begun.validator}
    try:
        response: HTTPResponse = _opener().open(
            request.Request(address, headers=headers), timeout=_SILENCE
        )
    except HTTPError as problem:
        problem.close()
        if problem.code == 416 and begun:
            raise _OtherVersion from problem
        reason = _REFUSALS.get(problem.code) or _said(problem.reason) or "it gives no reason"
        raise DataError(
            f"{address}: the server answers {problem.code}, {reason}. {remedy}", setting="address"
        ) from problem
    except (URLError, OSError, HTTPException, ValueError) as problem:
        raise DataError(
            f"{address}: cannot be reached ({_reason(problem)}). {remedy}", setting="address"
        ) from problem
    if response.status == 206 and begun:
        if _goes_on(response.headers, begun, have):
            return response
        response.close()
        raise _OtherVersion
    if response.status != 200:
        complaint = f"the server answers {response.status}, which brings no file"
    elif "Content-Type" in response.headers and response.headers.get_content_type() == "text/html":
        complaint = "leads to a web page, not to the file itself"
    else:
        return response
    response.close()
    raise DataError(f"{address}: {complaint}. {remedy}", setting="address")


class _Redirects(request.HTTPRedirectHandler):
    """Redirections, but none from an encrypted address to one that is not."""

    def redirect_request(
        self,
        req: request.Request,
        fp: Any,
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> request.Request | None:
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise URLError("it redirects to an address that is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> request.OpenerDirector:
    """The web, also behind a redirection, and nothing else that urllib opens (files, FTP)."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        _Redirects,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _reason(problem: Exception) -> str:
    cause = problem.reason if isinstance(problem, URLError) else problem
    if isinstance(cause, socket.gaierror):
        return "its name is not known: the place is gone, or there is no network here"
    if isinstance(cause, TimeoutError):
        return f"nothing came for {_SILENCE:.0f} s"
    return _said(cause) or type(cause).__name__


def _said(words: object) -> str:
    """What a server said, on one line and without characters that change a terminal."""
    return "".join(
        letter if letter.isprintable() else "?" for letter in " ".join(str(words).split())
    )[:200]


def _validator(headers: Message) -> str | None:
    tag, date = (headers.get(name) for name in ("ETag", "Last-Modified"))
    name = tag if tag and not tag.startswith("W/") else date
    return name if name and name.isascii() and name.isprintable() else None


def _length(headers: Message) -> int | None:
    text = headers.get("Content-Length", "").strip()
    return (
        int(text)
        if re.fullmatch(r"\d{1,18}", text) and "Transfer-Encoding" not in headers
        else None
    )


def _goes_on(headers: Message, begun: _Version, have: int) -> bool:
    """Whether a part that the server sends goes on where ours ends.

    It must also be of the same version, as far as the server says.
    """
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers.get("Content-Range", "").strip())
    if found is None or int(found[1]) != have:
        return False
    if begun.total is not None and (
        int(found[2]) != begun.total - 1 or found[3] not in ("*", str(begun.total))
    ):
        return False
    name = "ETag" if (begun.validator or "").startswith('"') else "Last-Modified"
    return headers.get(name, begun.validator) == begun.validator


def _receive(
    response: HTTPResponse,
    part: Path,
    have: int,
    total: int | None,
    address: str,
    title: str,
    progress: Progress,
) -> None:
    """Write what comes behind the first `have` bytes of `part`."""
    rest = f", after the {have / MIB:,.0f} there were" if have else ""
    count = None if total is None else max(1, round((total - have) / MIB))
    done = have
    with (
        part.open("r+b" if have else "xb") as file,
        progress(f"{title}, MiB{rest}", total=count) as advance,
    ):
        file.seek(have)
        while block := _read(response, address, done, total):
            done += len(block)
            if total is not None and done > total:
                break
            file.write(block)
            advance(len(block) / MIB)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done > total:
        forget(part)
        raise DataError(
            f"{address}: sends more than {total:,} bytes, the size of the file: another one lies "
            "there now."
        )
    if total is not None and done < total:
        raise _stopped(address, done, total, "the server ended it")
    if part.stat().st_size != done:
        forget(part)
        raise DataError(
            f"{part}: changed while it was loaded; is something else loading it too? It was "
            "removed. Call it again."
        )


def _read(response: HTTPResponse, address: str, done: int, total: int | None) -> bytes:
    try:
        # what has come, so that little is lost where the next never does
        return response.read1(_BLOCK)
    except (OSError, HTTPException) as problem:
        raise _stopped(address, done, total, _reason(problem)) from problem


def _stopped(address: str, done: int, total: int | None, reason: str) -> DataError:
    whole = "an unknown number of" if total is None else f"{total:,}"
    return DataError(
        f"{address}: the transfer stopped after {done:,} of {whole} bytes ({reason}); what came is "
        "kept. Call it again: it goes on from there where the server allows it."
    )
