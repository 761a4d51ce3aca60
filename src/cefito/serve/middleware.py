"""The outermost layer of the application, access, limits of bodies, headers; and its metrics."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from asgi_correlation_id import correlation_id
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cefito.serve.logs import MONITORED, log_request
from cefito.serve.problems import ProblemError
from cefito.serve.process import client_of
from cefito.serve.scheduler import SearchJob
from cefito.serve.settings import Limits, ServiceSettings
from cefito.serve.stations import Access, Role

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")


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
        self.waiting = gauge("cefito_waiting", "Searches in the queue.")
        self.running = gauge("cefito_running", "Searches that run.")
        self.sessions = gauge("cefito_sessions", "Live sessions that are open.")
        older = "Live sessions that follow a run which another has replaced."
        self.older = gauge("cefito_sessions_older", older)
        expired = "Live sessions that ended because they were idle."
        self.expired = counter("cefito_sessions_expired", expired)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            scope: Request, as ASGI describes it.
            status: Status of the response.
            seconds: Time from request to response.
        """
        route = getattr(scope.get("route"), "path", None) or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def searched(
        self, run: str, horizon: int, outcome: str, job: SearchJob, tokens: int = 0
    ) -> None:
        """Count a search.

        Args:
            run: Name of the run.
            horizon: T.
            outcome: How the search ended.
            job: The search.
            tokens: Token forwards that it took.
        """
        self._searches.labels(run, str(horizon), outcome).inc()
        if tokens:
            self._tokens.labels(run, str(horizon)).inc(tokens)
        if outcome == "answered":
            self._together.observe(job.together)


UPLOAD = "/upload"
"""End of the paths of uploads, whose bodies may be larger."""
DOCS = "/docs"
"""Path of FastAPI's page of the routes."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy of all answers: nothing inline, nothing from other origins."""
_HEADERS = {"referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
METRICS = "/metrics"
"""Path of Prometheus metrics, for administrators."""
_PORT = re.compile(r":[0-9]*$")
_GONE = 499  # status of requests whose client disconnected before the answer

logger = logging.getLogger(__name__)


def clean_id(sent: str) -> str:
    """The request id of a client if it is safe to log, otherwise a new one."""
    return sent if _ID.fullmatch(sent) else uuid4().hex


def closing() -> ProblemError:
    """The service is shutting down."""
    detail = "the service takes no requests now. Try again later."
    return ProblemError(detail, headers={"retry-after": "10"}, kind="not-ready")


@dataclass(frozen=True)
class RequestMiddleware:
    """Checks every request before the application, and counts it afterwards."""

    app: ASGIApp
    settings: ServiceSettings
    metrics: Metrics
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self.settings.limits, scope, receive, send)
        client = client_of(scope["client"][0]) if scope.get("client") else ""
        state = scope.setdefault("state", {})
        state.update(began=exchange.began, client=client, station=None, access=self.access)
        inner = scope
        if scope["method"] == "HEAD" and not scope["path"].endswith("/events"):  # a stream
            inner = {**scope, "method": "GET"}  # the server leaves the body out
        try:
            self._check(scope, Headers(scope=scope), exchange.limit)
            await self.app(inner, exchange.receive, exchange.send)
        except ProblemError as problem:  # of the checks; the application answers its own
            inner = {**inner, "route": _route(inner)}
            await exchange.refuse(problem)
        except asyncio.CancelledError:  # the time to finish running requests is over
            await exchange.refuse(closing())
        except Exception:
            logger.exception("request %s: a defect of cefito", correlation_id.get())
            detail = "a defect of cefito. The service's log has it under this request id."
            await exchange.refuse(ProblemError(detail, kind="internal"))
        finally:
            counted = {**inner, "method": scope["method"]}
            outcome = exchange.status or _GONE, exchange.seconds
            self.metrics.request(counted, *outcome)
            log_request(counted, *outcome)

    def _check(self, scope: Scope, headers: Headers, limit: int) -> None:
        """Check host, origin, token, role and announced size."""
        hosts, host = self.settings.hosts, headers.get("host", "")
        name = _PORT.sub("", host).removeprefix("[").removesuffix("]").lower()
        if hosts is not None and name not in hosts:
            raise ProblemError(
                f"unknown host {name[:100]!r}; without a token this service answers only to "
                f"{', '.join(hosts)}. Use one of these names.",
                kind="host",
            )
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin", "")
        foreign = origin and origin.rpartition("/")[2].lower() != host.lower()
        changing = scope["method"] not in ("GET", "HEAD")
        if changing and (foreign or site not in ("none", "same-origin")):
            raise ProblemError(
                f"sent by a page of another site{f' ({origin[:100]})' if origin else ''}, not of "
                f"{host[:100]}. Send it from your own program; a proxy must pass the header Host "
                "on.",
                status=403,
                kind="host",
            )
        if not self.access.open and scope["path"] not in MONITORED:
            self._admit(scope, headers, "use" if changing else "watch")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 19 or int(length) > limit):
            raise _too_large(limit)

    def _admit(self, scope: Scope, headers: Headers, role: Role) -> None:
        """Find the station of a token, which may do what the request asks for."""
        sent = _token(headers.get("authorization", ""))
        station = self.access.find(sent)
        if station is None:
            raise ProblemError(
                f"{'the token is not valid' if sent else 'a token is needed'}. Send the header "
                "'Authorization: Bearer TOKEN', or the token as password.",
                headers={"www-authenticate": 'Basic realm="cefito", Bearer realm="cefito"'},
                kind="token",
            )
        state, role = scope["state"], "administer" if scope["path"] == METRICS else role
        state.update(station=station, client=station.client or state["client"])
        if not station.may(role):
            detail = f"the station '{station.name}' has the role '{station.role}'; this needs"
            raise ProblemError(f"{detail} '{role}'. Use another token.", kind="role")


class _Exchange:
    """One request and its answer."""

    def __init__(self, limits: Limits, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.inner_receive, self.inner_send = scope, receive, send
        self.limit = limits.upload_bytes if scope["path"].endswith(UPLOAD) else limits.body_bytes
        self.patience = limits.receive_seconds
        self.began = time.monotonic()
        self.status = self.received = 0
        self.complete = not {"content-length", "transfer-encoding"} & {*Headers(scope=scope)}

    @property
    def seconds(self) -> float:
        """Since the request began."""
        return time.monotonic() - self.began

    async def receive(self) -> Message:
        """The next part of the body, within the limits of size and time."""
        if self.complete:  # wait for the client to disconnect
            return await self.inner_receive()
        try:
            message = await self._next()
        except TimeoutError as problem:
            within = f"within {self.patience:g} seconds"
            detail = f"the body did not arrive {within}. Send it faster, or less."
            raise ProblemError(detail, kind="slow") from problem
        if self.received > self.limit:
            raise _too_large(self.limit)
        return message

    async def _next(self) -> Message:
        async with asyncio.timeout(max(0.0, self.patience - self.seconds)):
            message = await self.inner_receive()
        self.received += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send on, with the headers of every answer."""
        if message["type"] == "http.response.start":
            with suppress(TimeoutError):  # a client may send its whole body before it reads
                while not self.complete:
                    await self._next()
            self.status = message["status"]
            headers, path = MutableHeaders(scope=message), self.scope["path"]
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            # FastAPI's page starts by a script in it
            inline = "script-src 'unsafe-inline'" if path == DOCS else "script-src"
            headers["content-security-policy"] = CONTENT_POLICY.replace("script-src", inline)
            if path.startswith("/v1/"):
                headers.setdefault("cache-control", "no-store")
            if not self.complete:
                headers["connection"] = "close"
        await self.inner_send(message)

    async def refuse(self, problem: ProblemError) -> None:
        """Answer with a problem unless an answer has begun."""
        if not self.status:
            await problem.response()(self.scope, self.receive, self.send)


def _route(scope: Scope) -> Any:
    """The route that a refused request would have reached; None if there is none."""
    for route in scope["app"].routes if "app" in scope else ():
        match, child = route.matches(scope)
        if match is Match.FULL:
            return child.get("route")
    return None


def _too_large(limit: int) -> ProblemError:
    detail = f"the body is too large: at most {limit:,} bytes are accepted. Send less at a time."
    return ProblemError(detail, limit=limit, kind="too-large")


def _token(authorization: str) -> str:
    """The token of a header: as a bearer, or as the password of a browser; empty without one."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    with suppress(binascii.Error, ValueError):
        if scheme.lower() == "basic":
            decoded = base64.b64decode(value.strip(), validate=True).decode("utf-8")
            return decoded.partition(":")[2]
    return ""
