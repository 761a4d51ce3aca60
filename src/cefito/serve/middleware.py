"""What every request passes: its id, its line in the log, who may come in, how much it may send."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cefito.serve.metrics import Metrics
from cefito.serve.problems import MEDIA_TYPE, ProblemError

__all__ = ["OPEN", "RequestMiddleware", "problem_bytes", "request_id_of"]

OPEN = ("/health", "/ready")
"""Paths that need no token: those that whoever watches the process asks."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

access = logging.getLogger("cefito.serve.access")
logger = logging.getLogger(__name__)


def request_id_of(scope: Scope) -> str:
    """The id of a request."""
    return str(scope["state"]["request_id"])


def problem_bytes(refused: ProblemError, request_id: str) -> bytes:
    """A problem document; ASCII, for names in it may be no valid Unicode."""
    return json.dumps(refused.document(request_id), allow_nan=False).encode("ascii")


@dataclass(frozen=True)
class RequestMiddleware:
    """The outermost part of the application.

    Attributes:
        app: What is behind it.
        metrics: Where requests are counted.
        body_bytes: Most bytes of a body.
        upload_bytes: Most bytes of an upload.
        receive_seconds: Most seconds that a body may take to arrive.
        token: What clients must show; None lets everybody in.
        hosts: Names by which it may be called; None for any.
        uploads: Paths that take uploads.
    """

    app: ASGIApp
    metrics: Metrics
    body_bytes: int
    upload_bytes: int
    receive_seconds: float
    token: str | None = None
    hosts: Sequence[str] | None = None
    uploads: tuple[str, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        scope["state"]["began"] = began = time.monotonic()
        passing = _Passing(self, scope, receive, send, request_id)
        try:
            refused = self._refusal(scope, headers)
            if refused is None:
                await self.app(scope, passing.receive, passing.send)
            else:
                await passing.refuse(refused)
        except Exception:
            logger.exception("request %s: a defect of cefito", request_id)
            if not passing.status:
                detail = (
                    "an unexpected error, a defect of cefito; its place stands in the service's "
                    "log under this request id."
                )
                await passing.refuse(ProblemError(500, "internal", detail))
        finally:
            seconds = time.monotonic() - began
            self.metrics.request(scope, passing.status, seconds)
            _log(scope, passing, seconds, request_id)

    def _refusal(self, scope: Scope, headers: Headers) -> ProblemError | None:
        """Why a request is not let in; None where it is."""
        name = _host_name(headers.get("host", ""))
        if self.hosts is not None and name not in self.hosts:
            return ProblemError(
                421,
                "host",
                f"this service is not called {name[:100]!r}; without a token it answers to "
                f"{', '.join(self.hosts)} alone. Call it by that name.",
            )
        if scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site") in (
            "cross-site",
            "same-site",
        ):
            return ProblemError(403, "host", "asked by a page of another site. Ask from your own.")
        secret = self.token if scope["path"] not in OPEN else None
        if secret is not None and not _shows(headers.get("authorization", ""), secret):
            return ProblemError(
                401,
                "token",
                "a token is needed: send the header 'Authorization: Bearer TOKEN', or the token as "
                "password.",
                headers={"www-authenticate": 'Basic realm="cefito", Bearer realm="cefito"'},
            )
        most = self.upload_bytes if scope["path"] in self.uploads else self.body_bytes
        length = headers.get("content-length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > most:
            return _too_large(most, int(length))
        return None


@dataclass
class _Passing:
    """One request on its way."""

    door: RequestMiddleware
    scope: Scope
    inner_receive: Receive
    inner_send: Send
    request_id: str
    status: int = 0
    sent: int = 0
    received: int = 0
    complete: bool = False
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.door.receive_seconds

    async def receive(self) -> Message:
        """The next part of the body, as long as it is neither too large nor too late."""
        if self.complete:  # from here on only that the client has gone
            return await self.inner_receive()
        try:
            async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                message = await self.inner_receive()
        except TimeoutError as problem:
            raise _Late(408) from problem
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        else:
            self.complete = True
        door = self.door
        uploads = self.scope["path"] in door.uploads
        if self.received > (door.upload_bytes if uploads else door.body_bytes):
            raise _TooLarge(413)
        return message

    async def send(self, message: Message) -> None:
        """Send on, with the headers of every response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self.scope["path"].startswith("/v1/"):
                headers.setdefault("cache-control", "no-store")
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self.inner_send(message)

    async def refuse(self, refused: ProblemError) -> None:
        """Answer with a problem."""
        body = problem_bytes(refused, self.request_id)
        headers: Mapping[str, str] = {
            "content-type": MEDIA_TYPE,
            "content-length": str(len(body)),
            **refused.headers,
            # what a client still sends is not read
            **({} if self.complete else {"connection": "close"}),
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})


class _Late(HTTPException):
    """A body that took too long."""


class _TooLarge(HTTPException):
    """A body that is too large."""


def _too_large(most: int, length: int) -> ProblemError:
    return ProblemError(
        413,
        "too-large",
        f"the request has {length:,} bytes; at most {most:,} are taken. Send less at a time.",
        numbers={"limit": most},
    )


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()


def _shows(authorization: str, token: str) -> bool:
    """Whether a header shows the token: as a bearer, or as the password that a browser asks for."""
    scheme, _, value = authorization.partition(" ")
    shown = value.strip()
    if scheme.lower() == "basic":
        try:
            shown = base64.b64decode(shown, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode())


def _log(scope: Scope, passing: _Passing, seconds: float, request_id: str) -> None:
    """One line for a request."""
    if not access.isEnabledFor(logging.INFO):
        return
    client: Any = scope.get("client")
    line = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request_id": request_id,
        "client": client[0] if client else None,
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": passing.status or 499,  # the client went before there was an answer
        "milliseconds": round(1e3 * seconds, 1),
        "received": passing.received,
        "sent": passing.sent,
        **scope["state"].get("noted", {}),
    }
    access.info(json.dumps(line))
