"""Prometheus metrics of a service."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import Scope

from cefito.serve.scheduler import SearchJob

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
        expired = "Live sessions that ended because they were idle."
        self.expired = counter("cefito_sessions_expired", expired)

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
