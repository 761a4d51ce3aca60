"""The server: from the first socket to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cefito.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["LOOPBACK", "check_extra", "is_loopback", "listen", "logging_to_stderr", "serve"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names by which a service on this machine alone is called."""
_BACKLOG = 256
_CONNECTIONS = 1000


def check_extra() -> None:
    """Refuse to begin where the packages of the extra are missing.

    Raises:
        ConfigError: One is; the message says how to install them.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as problem:
        raise ConfigError(
            f"cefito serve needs the package {problem.name}, which is not installed. Run: pip "
            "install 'cefito[serve]'"
        ) from problem


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: Name or address.
        port: 0 to 65535; 0 for any that is free.

    Raises:
        ConfigError: It cannot be had.
    """
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port {port}: expected 0 to 65535.", setting="port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(
            f"cannot listen on {host}, port {port} ({reason}). Choose another port or address.",
            setting="port",
        ) from problem
    listening.setblocking(False)
    return listening


def serve(
    app: FastAPI,
    listening: socket.socket,
    *,
    drain_seconds: float,
    ready: Callable[[], None],
) -> None:
    """Answer requests until told to end by SIGTERM or SIGINT; then finish what runs.

    A second signal ends it at once.

    Args:
        app: The application.
        listening: The socket.
        drain_seconds: Seconds that running requests have to end.
        ready: Called when requests are taken.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """A server for which to be told to end is no error."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            kept = {
                number: signal.signal(number, self.handle_exit)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
            try:
                yield
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15,
        # Searches are stopped after the same time by the service itself, with what they have.
        timeout_graceful_shutdown=int(drain_seconds) + 5,
    )
    asyncio.run(Server(config).serve(sockets=[listening]))


@contextlib.contextmanager
def logging_to_stderr(*, access: bool) -> Iterator[None]:
    """Write lines of the log to stderr, one JSON object each.

    Args:
        access: Whether to write a line for each request.
    """

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = record.getMessage()
            if record.name != "cefito.serve.access":
                entry = {"level": record.levelname.lower(), "message": line}
                if record.exc_info:
                    entry["traceback"] = logging.Formatter().formatException(record.exc_info)
                line = json.dumps(entry)
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                sys.stderr.write(line + "\n")
                sys.stderr.flush()

    handler, loggers = Lines(), [logging.getLogger(name) for name in ("cefito", "uvicorn.error")]
    requests = logging.getLogger("cefito.serve.access")
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
