"""The outermost layer of the application: access, body limits, security headers, log, counters."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from asgi_correlation_id import correlation_id
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cefito.serve.problems import MEDIA_TYPE, ProblemError
from cefito.serve.scheduler import Scheduler, SearchJob
from cefito.serve.settings import ServiceSettings

__all__ = [
    "CONTENT_POLICY",
    "UPLOAD",
    "Metrics",
    "RequestMiddleware",
    "clean_id",
    "closing",
]

UPLOAD = "/upload"
"""End of the paths of uploads, whose bodies may be larger."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy of all answers: nothing inline, nothing from other origins."""
_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_OPEN = ("/health", "/ready")  # paths that need no token, for monitoring
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")
_GONE = 499  # status of requests whose client disconnected before the answer
_LINGER = 1.0  # seconds without data, after which the rest of a body is no longer waited for

access = logging.getLogger("cefito.serve.access")
logger = logging.getLogger(__name__)


class Metrics:
    """Prometheus metrics of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry)
        search = ("run", "horizon")
        requests = "Requests by route, method and status."
        self._requests = counter("cefito_requests", requests, ("route", "method", "status"))
        latency = "Seconds from the arrival of a request to the end of its answer."
        self._seconds = histogram("cefito_request_seconds", latency, ("route",), buckets=_SECONDS)
        searches = "Searches by run, horizon and outcome."
        self._searches = counter("cefito_searches", searches, (*search, "outcome"))
        self._tokens = counter("cefito_token_forwards", "Tokens that networks processed.", search)
        batch = "Queries that were searched in one batch."
        self._together = histogram("cefito_walked_together", batch, buckets=_BATCHES)
        self._waiting = gauge("cefito_waiting", "Searches in the queue.")
        self._running = gauge("cefito_running", "Searches that run.")
        self._sessions = gauge("cefito_sessions", "Live sessions that are open.")
        events = "Events of live sessions by run, horizon and kind."
        self._events = counter("cefito_session_events", events, (*search, "kind"))
        expired = "Live sessions that ended because they were idle."
        self.expired = counter("cefito_sessions_expired", expired)

    def watch_sessions(self, count: Callable[[], int]) -> None:
        """Report the number of live sessions."""
        self._sessions.set_function(count)

    def session_event(self, run: str, horizon: int, kind: str) -> None:
        """Count an event of a live session."""
        self._events.labels(run, str(horizon), kind).inc()

    def watch(self, scheduler: Scheduler) -> None:
        """Report the queue of a scheduler."""
        self._waiting.set_function(lambda: scheduler.waiting)
        self._running.set_function(lambda: scheduler.running)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request."""
        route = getattr(scope.get("route"), "path", None) or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def searched(
        self, run: str, horizon: int, outcome: str, job: SearchJob, tokens: int = 0
    ) -> None:
        """Count a search."""
        self._searches.labels(run, str(horizon), outcome).inc()
        if tokens:
            self._tokens.labels(run, str(horizon)).inc(tokens)
        if outcome == "answered":
            self._together.observe(job.together)


def clean_id(given: str) -> str:
    """The request id of a client if it is safe to log, otherwise a new one."""
    return given if _ID.fullmatch(given) else uuid4().hex


def closing() -> ProblemError:
    """The service is shutting down."""
    detail = "the service takes no requests now. Try again later."
    return ProblemError(detail, headers={"retry-after": "10"}, kind="not-ready")


@dataclass(frozen=True)
class RequestMiddleware:
    """Checks every request before the application, and logs and counts it afterwards."""

    app: ASGIApp
    settings: ServiceSettings
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        scope.setdefault("state", {})["began"] = exchange.began
        try:
            self._check(scope, Headers(scope=scope), exchange.limit)
            await self.app(scope, exchange.receive, exchange.send)
        except ProblemError as problem:  # of the checks; the application answers its own
            await exchange.refuse(problem)
        except asyncio.CancelledError:  # the time to finish running requests is over
            await exchange.refuse(closing())
        except Exception:
            logger.exception("request %s: a defect of cefito", correlation_id.get())
            detail = "a defect of cefito. The service's log has it under this request id."
            await exchange.refuse(ProblemError(detail, kind="internal"))
        finally:
            exchange.finish()

    def _check(self, scope: Scope, headers: Headers, limit: int) -> None:
        """Check host, origin, token and announced size."""
        hosts, token = self.settings.hosts, self.settings.token
        given = headers.get("host", "")
        host = _HOST.fullmatch(given)
        name = (host[1] or host[2]).lower() if host else ""
        if hosts is not None and name not in hosts:
            raise ProblemError(
                f"unknown host {name[:100]!r}; without a token this service answers only to "
                f"{', '.join(hosts)}. Use one of these names.",
                kind="host",
            )
        if given and not host:
            detail = f"host {given[:100]!r}: expected a name or address, and perhaps a port."
            raise ProblemError(detail, kind="host")
        if scope["method"] not in ("GET", "HEAD"):
            _check_site(headers, given)
        shown = headers.get("authorization", "")
        if token and scope["path"] not in _OPEN and not _shows(shown, token.get_secret_value()):
            raise ProblemError(
                "a token is needed. Send the header 'Authorization: Bearer TOKEN', or the token as "
                "password.",
                headers={"www-authenticate": 'Basic realm="cefito", Bearer realm="cefito"'},
                kind="token",
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 19 or int(length) > limit):
            raise _too_large(limit)


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.middleware, self.scope = middleware, scope
        self.inner_receive, self.inner_send = receive, send
        limits = middleware.settings.limits
        self.limit = limits.upload_bytes if scope["path"].endswith(UPLOAD) else limits.body_bytes
        self.began = time.monotonic()
        self.status = self.sent = self.received = 0
        self.complete = False
        names = dict(scope["headers"])
        self.has_body = b"content-length" in names or b"transfer-encoding" in names

    async def receive(self) -> Message:
        """The next part of the body, within the limits of size and time."""
        if self.complete:  # wait for the client to disconnect
            return await self.inner_receive()
        seconds = self.middleware.settings.limits.receive_seconds
        try:
            async with asyncio.timeout(max(0.0, self.began + seconds - time.monotonic())):
                message = await self.inner_receive()
        except TimeoutError as problem:
            detail = f"the body did not arrive within {seconds:g} seconds. Send it faster, or less."
            raise ProblemError(detail, kind="slow") from problem
        self.received += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.received > self.limit:
            raise _too_large(self.limit)
        return message

    async def send(self, message: Message) -> None:
        """Send on, with the headers of every answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self.scope["path"].startswith("/v1/"):
                headers.setdefault("cache-control", "no-store")
            if self.has_body and not self.complete:  # the rest of it is thrown away
                headers["connection"] = "close"
        self.sent += len(message.get("body", b""))
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self.has_body and not self.complete:
            # The answer goes out before its end is said, which closes the connection: a client
            # that sends before it reads would otherwise find it reset.
            await self.inner_send({**message, "more_body": True})
            try:
                await self._throw_away()
            finally:
                await self.inner_send({"type": "http.response.body"})
        else:
            await self.inner_send(message)

    async def _throw_away(self) -> None:
        """Read the rest of the body, within its time and while it comes, and keep nothing."""
        left = self.began + self.middleware.settings.limits.receive_seconds - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left)):
                while not self.complete:
                    message = await asyncio.wait_for(self.inner_receive(), _LINGER)
                    self.received += len(message.get("body", b""))
                    self.complete = not message.get("more_body", False)

    async def refuse(self, problem: ProblemError) -> None:
        """Answer with a problem unless an answer has begun."""
        if self.status:
            return
        body = problem.encoded()
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body))}
        headers |= problem.headers or {}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        status = problem.status_code
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    def finish(self) -> None:
        """Count the request and log it in one line of JSON."""
        seconds, status = time.monotonic() - self.began, self.status or _GONE
        self.middleware.metrics.request(self.scope, status, seconds)
        if not access.isEnabledFor(logging.INFO):
            return
        client: Any = self.scope.get("client")
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "request_id": correlation_id.get(),
            "client": client[0] if client else None,
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": status,
            "milliseconds": round(1e3 * seconds, 1),
            "received": self.received,
            "sent": self.sent,
            **self.scope["state"].get("noted", {}),
        }
        access.info(json.dumps(line))


def _check_site(headers: Headers, host: str) -> None:
    """Refuse what a browser sends for a page of another site."""
    site = headers.get("sec-fetch-site", "none").strip().lower()
    origin = headers.get("origin", "").strip().lower()
    scheme, _, asked = origin.partition("://")
    ports = {"http": ":80", "https": ":443"}
    port = ports.get(scheme, "")
    own = asked.removesuffix(port) == host.lower().removesuffix(port) and scheme in ports
    if site not in ("none", "same-origin") or (origin and not own):
        raise ProblemError(
            f"sent by a page of another site{f' ({origin[:100]})' if origin else ''}, not of "
            f"{host[:100]}. Send it from your own program; a proxy must pass the header Host on.",
            status=403,
            kind="host",
        )


def _too_large(limit: int) -> ProblemError:
    detail = f"the body is too large: at most {limit:,} bytes are accepted. Send less at a time."
    return ProblemError(detail, limit=limit, kind="too-large")


def _shows(authorization: str, token: str) -> bool:
    """Whether a header holds the token: as a bearer, or as the password of a browser."""
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
