"""What Prometheus is told."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Scope

from cefito.serve.scheduler import Engine, Job

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "cefito_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "cefito_request_seconds",
            "Seconds from the arrival of a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._searches = Counter(
            "cefito_searches",
            "Searches by run, horizon and what came of them.",
            ("run", "horizon", "outcome"),
            registry=self.registry,
        )
        self._tokens = Counter(
            "cefito_token_forwards",
            "Tokens that went through networks.",
            ("run", "horizon"),
            registry=self.registry,
        )
        self._together = Histogram(
            "cefito_walked_together",
            "Queries that were walked together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self._waiting = Gauge("cefito_waiting", "Searches in the queue.", registry=self.registry)
        self._running = Gauge("cefito_running", "Searches that run.", registry=self.registry)

    def watch(self, engine: Engine) -> None:
        """Tell how busy an engine is."""
        self._waiting.set_function(lambda: engine.waiting)
        self._running.set_function(lambda: engine.running)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request; `status` is 0 where the client went before there was an answer."""
        route = getattr(scope.get("route"), "path", None) or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status or 499)).inc()
        self._seconds.labels(route).observe(seconds)

    def searched(
        self, run: str, horizon: int, outcome: str, *, job: Job | None = None, tokens: int = 0
    ) -> None:
        """Count a search."""
        self._searches.labels(run, str(horizon), outcome).inc()
        if tokens:
            self._tokens.labels(run, str(horizon)).inc(tokens)
        if job is not None and outcome == "answered":
            self._together.observe(job.together)

    def page(self) -> bytes:
        """All of it in Prometheus' text form."""
        return generate_latest(self.registry)
