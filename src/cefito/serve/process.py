"""The server process: its packages, socket, signals and log."""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from cefito.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from cefito.serve.settings import Limits


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of a service that only this machine can reach."""
_BACKLOG = 256  # connections that wait to be accepted
_FILES = 16_384  # open files, if the system allows
_OWN_FILES = 128  # of them, not of connections
_LOGGERS = ("cefito", "uvicorn.error", "asyncio", "python_multipart")
_SWITCH = 0.0005  # seconds between threads; a light request changes them several times


def check_extra(*, mcp: bool = False) -> None:
    """Check that the packages of the extra are installed, those of tools too (ConfigError)."""
    packages = ("fastapi", "fastapi_offline", "asgi_correlation_id", "prometheus_client")
    for package in (*packages, "python_multipart", "uvicorn", *["mcp"] * mcp):
        if find_spec(package) is None:
            raise ConfigError(
                f"this needs the package {package}, which is not installed. Run: pip install "
                f"'cefito[{'mcp' if mcp else 'serve'}]'"
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
        listening = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ipv6 else socket.AF_INET,
            dualstack_ipv6=ipv6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(
            f"cannot listen on {host}, port {port} ({reason}). Choose another port or address.",
            setting="port",
        ) from problem
    # connections inherit it; otherwise answers, which are sent in two parts, wait 40 ms
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """The server of an application, with as many connections as there may be open files."""
    import uvicorn

    from cefito.serve.connections import Connection

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast("Any", partial(Connection, seconds=limits.receive_seconds)),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=_most_connections(),
            timeout_keep_alive=15,
            timeout_graceful_shutdown=math.ceil(limits.drain_seconds),
        )
    )


def _most_connections() -> int | None:
    """Connections for which there are files, after their limit is raised as far as needed."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, most - _OWN_FILES)


def serve(
    app: FastAPI, listening: socket.socket, *, limits: Limits, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests within the time for it.

    `ready` is called once requests and signals are accepted.
    """
    server = make_server(app, limits)
    sys.setswitchinterval(_SWITCH)
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
        entry: dict[str, Any] = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = logging.Formatter().formatException(record.exc_info)
        return json.dumps(entry)


@contextmanager
def logging_to_stderr(*, access: bool) -> Iterator[None]:
    """Log to stderr in JSON; `access` adds a line for each request."""
    handler, requests = _JsonLines(), logging.getLogger("cefito.serve.access")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
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
