"""The server process: its packages, socket, signals and log."""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cefito.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["LOOPBACK", "check_extra", "is_loopback", "listen", "logging_to_stderr", "serve"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of a service that only this machine can reach."""
_CONNECTIONS = 1000


def check_extra() -> None:
    """Check that the packages of the extra are installed (ConfigError)."""
    packages = ("fastapi", "asgi_correlation_id", "prometheus_client", "python_multipart")
    for package in (*packages, "uvicorn"):
        if find_spec(package) is None:
            raise ConfigError(
                f"cefito serve needs the package {package}, which is not installed. Run: pip "
                "install 'cefito[serve]'"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address (ConfigError if it cannot be used); port 0 takes any free port."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port {port}: expected 0 to 65535.", setting="port")
    ipv6 = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ipv6 else socket.AF_INET,
            backlog=256,
            dualstack_ipv6=ipv6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(
            f"cannot listen on {host}, port {port} ({reason}). Choose another port or address.",
            setting="port",
        ) from problem


def serve(
    app: FastAPI, listening: socket.socket, *, drain_seconds: float, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests within `drain_seconds`.

    `ready` is called once requests and signals are accepted.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=math.ceil(drain_seconds),
    )
    server = uvicorn.Server(config)
    # uvicorn raises the signal again after its shutdown, but a requested shutdown is no failure.
    signals = (signal.SIGINT, signal.SIGTERM)
    kept = {one: signal.signal(one, server.handle_exit) for one in signals}
    try:
        ready()
        server.run(sockets=[listening])
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


class _JsonLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes one JSON object a line to stderr."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "cefito.serve.access":
            return record.getMessage()
        entry = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = logging.Formatter().formatException(record.exc_info)
        return json.dumps(entry)


@contextmanager
def logging_to_stderr(*, access: bool) -> Iterator[None]:
    """Log to stderr in JSON; `access` adds a line for each request."""
    handler, requests = _JsonLines(), logging.getLogger("cefito.serve.access")
    loggers = [logging.getLogger(name) for name in ("cefito", "uvicorn.error")]
    old = [(one, one.level) for one in (*loggers, requests)]
    for one in loggers:
        one.addHandler(handler)
        one.setLevel(max(one.getEffectiveLevel(), logging.WARNING))
    requests.setLevel(logging.INFO if access else logging.ERROR)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(handler)
        for one, level in old:
            one.setLevel(level)
