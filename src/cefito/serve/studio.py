"""Films and annotations fetched from a Label Studio server, or films from other addresses."""

from __future__ import annotations

import hashlib
import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from cefito.errors import DataError, remedy_for
from cefito.settings import Record

_SECONDS = 60.0  # of silence, after which a download is given up
_PIECE = 1 << 20  # bytes
_FAULTS = OSError, http.client.HTTPException, ValueError
_DOTS = 2  # in a token that is exchanged for one of minutes, a JWT


class Studio(Record):
    """A Label Studio server, and the token of a user."""

    address: str  # http://HOST:PORT, perhaps with a folder
    token: SecretStr

    def owns(self, url: str) -> bool:
        """Whether an address is of this server, so that it may see the token."""
        return urlsplit(url)[:2] == urlsplit(self.address)[:2]

    def authorization(self) -> str:
        """Return the header that shows the token; one of long life is exchanged first."""
        token = self.token.get_secret_value()
        if token.count(".") != _DOTS:
            return f"Token {token}"
        body = json.dumps({"refresh": token}).encode()
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._root}/api/token/refresh", body, kind)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return f"Bearer {json.load(answer)['access']}"

    @property
    def _root(self) -> str:
        return self.address.rstrip("/")

    def annotated(self, project: str) -> list[dict[str, Any]]:
        """Return the annotated tasks of a project (DataError if the server does not give them)."""
        url = f"{self._root}/api/projects/{project}/export?exportType=JSON"
        request = urllib.request.Request(url)
        try:
            request.add_unredirected_header("Authorization", self.authorization())
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                tasks: list[dict[str, Any]] = json.load(answer)
                return tasks
        except (*_FAULTS, KeyError) as problem:
            _denied(problem)
            raise DataError(f"{url}: cannot be fetched ({problem}). Check the token.") from problem

    def url(self, path: str) -> str:
        """Return the whole address of a path on this server."""
        return f"{self._root}{path}"


def fetch_film(address: str, target: Path, *, studio: Studio | None, most: int) -> str:
    """Write the film at an address into a file, and return its SHA-256.

    A path (/data/upload/…, /data/local-files/?d=…) is of the Label Studio server, which alone sees
    the token; other servers see none, also after a redirect.

    Args:
        address: The address, of http or https, or the path.
        target: The file.
        studio: The server; None if it is not known.
        most: Bytes of the largest film.

    Raises:
        DataError: An address of another kind, of an unknown server or without a film, or one that
            is too large.
    """
    url = address
    if address.startswith("/") and not address.startswith("//"):
        if studio is None:
            remedy = "Press Save in the project's settings of its model, or give --studio"
            raise DataError(f"{address}: is of a Label Studio server, which is unknown. {remedy}.")
        url = studio.url(address)
    if not url.startswith(("http://", "https://")):
        remedy = "Give films of the storage presigned URLs in Label Studio"
        raise DataError(f"{address[:200]}: expected a path or an address of http. {remedy}.")
    digest, size = hashlib.sha256(), 0
    try:
        request = urllib.request.Request(url)
        if studio is not None and studio.owns(url):
            request.add_unredirected_header("Authorization", studio.authorization())
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer, target.open("wb") as file:
            while piece := answer.read(_PIECE):
                size += len(piece)
                if size > most:
                    raise DataError(f"{address}: has more than {most >> 20:,} MiB. Cut it.")
                digest.update(piece)
                file.write(piece)
    except (*_FAULTS, KeyError) as problem:
        denied = _denied(problem)
        token = "Give --studio and a token that it takes."
        remedy = token if denied else remedy_for(problem, "Check the address.")
        raise DataError(f"{address}: cannot be fetched ({problem}). {remedy}") from problem
    return digest.hexdigest()


def _denied(problem: Exception) -> bool:
    """Whether a server refused the token; its answer is closed."""
    if not isinstance(problem, urllib.error.HTTPError):
        return False
    problem.close()
    return problem.code in (401, 403)
