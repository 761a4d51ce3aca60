"""The server process: its socket, connections, signals and log."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, start_http_server
from uvicorn.protocols.http.h11_impl import H11Protocol

from cefito.errors import ConfigError
from cefito.serve.logs import log_to_stderr
from cefito.serve.settings import ServiceSettings

_BACKLOG = 256  # connections that wait to be accepted
_FILES = 16_384  # open files, if the system allows
_OWN_FILES = 128  # of them, not of connections
_SWITCH = 0.0005  # seconds between threads; a light request changes them several times


@lru_cache(4096)
def client_of(host: str) -> str:
    """Return the client at an address; of IPv6 the first 64 bits, since one client has the rest."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and not address.ipv4_mapped:
        return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
    return str(getattr(address, "ipv4_mapped", None) or address)


class Connection(H11Protocol):
    """A connection that has limits of time which uvicorn lacks.

    uvicorn closes a connection that is silent after an answer. This class also closes one if the
    client takes more than `seconds` to send the headers of a request, or to read its answer. At
    shutdown it closes requests whose bodies have not arrived, and streams, which never end.
    """

    def __init__(self, *arguments: Any, seconds: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._seconds = seconds
        self._late: asyncio.TimerHandle | None = None

    @property
    def _waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time until the headers are whole."""
        super().connection_made(transport)
        self._begin_timer()

    def data_received(self, data: bytes) -> None:
        """Limit the time again after an answer, until the next headers are whole."""
        if self._waiting:
            self._begin_timer()
        super().data_received(data)
        if not (self._waiting or self.flow.write_paused):
            self._end_timer()

    def pause_writing(self) -> None:
        """Limit the time for the client to read its answer."""
        super().pause_writing()
        self._begin_timer()

    def resume_writing(self) -> None:
        """End the limit, since the client reads."""
        super().resume_writing()
        self._end_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer."""
        self._end_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish a request that has arrived whole, and end others."""
        super().shutdown()
        if not self._waiting and (self.cycle.more_body or self.scope["state"].get("stream")):
            self.transport.close()

    def _begin_timer(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._seconds, self.transport.abort)

    def _end_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


@contextmanager
def _refused(host: str, port: int, setting: str) -> Iterator[None]:
    """Refuse an address that cannot be used (ConfigError)."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port {port}: expected 0 to 65535.", setting=setting)
    try:
        yield
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(
            f"cannot listen on {host}, port {port} ({reason}). Choose another port or address.",
            setting=setting,
        ) from problem


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address (ConfigError if it cannot be used); port 0 takes any free port."""
    ipv6 = ":" in host
    with _refused(host, port, "port"):
        listening = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ipv6 else socket.AF_INET,
            dualstack_ipv6=ipv6 and socket.has_dualstack_ipv6(),
        )
    # connections inherit it; otherwise answers, which are sent in two parts, wait 40 ms
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def metrics_at(host: str, port: int, registry: CollectorRegistry) -> Iterator[str]:
    """Answer monitors without a token, on a port of their own.

    Args:
        host: Address to listen on.
        port: Port; 0 takes any free port.
        registry: Metrics.

    Yields:
        Address of the metrics.

    Raises:
        ConfigError: The address cannot be used.
    """
    with _refused(host, port, "metrics_port"):
        server, thread = start_http_server(port, host, registry)
    try:
        yield f"{address_of(host, server.server_port)}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def address_of(host: str, port: int) -> str:
    """Return the address of a server for browsers."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(app: FastAPI, settings: ServiceSettings) -> uvicorn.Server:
    """Return the server of an application, with as many connections as there may be open files."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast("Any", partial(Connection, seconds=settings.limits.receive_seconds)),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # the middleware has a log of requests
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=[*settings.proxies],
            backlog=_BACKLOG,
            limit_concurrency=_most_connections(),
            timeout_keep_alive=15,
            timeout_graceful_shutdown=math.ceil(settings.limits.drain_seconds),
        )
    )


def _most_connections() -> int | None:
    """Raise the limit of open files as far as needed; return how many may be connections."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, most - _OWN_FILES)


def serve(
    app: FastAPI,
    listening: socket.socket,
    *,
    settings: ServiceSettings,
    access: bool,
    ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests within the time for it.

    SIGHUP opens the runs anew. `ready` is called once requests and signals are accepted, and after
    each SIGHUP. Warnings are written to stderr, and with `access` a line for each request.

    Args:
        app: The application.
        listening: Bound socket.
        settings: Settings of the service.
        access: Write a line for each request.
        ready: Called once requests are accepted, and after each SIGHUP.
    """
    log_to_stderr(settings.log_format, requests=access)
    server = make_server(app, settings)
    sys.setswitchinterval(_SWITCH)
    # uvicorn raises the signal again after its shutdown, but a requested shutdown is no failure.
    signals = (signal.SIGINT, signal.SIGTERM)

    def reload() -> None:
        app.state.service.reload()
        ready()

    kept = {number: signal.signal(number, server.handle_exit) for number in signals}
    try:
        ready()
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            if hasattr(signal, "SIGHUP"):
                loop = runner.get_loop()
                loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, reload)
            runner.run(server.serve([listening]))
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
