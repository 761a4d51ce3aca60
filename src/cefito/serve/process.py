"""The server process: its socket, connections, signals and log."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from threading import Thread
from types import FrameType
from typing import Any, cast
from wsgiref.simple_server import WSGIServer

import uvicorn
from fastapi import FastAPI
from prometheus_client import make_wsgi_app, start_http_server
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector
from uvicorn.protocols.http.h11_impl import H11Protocol

from cefito.errors import ConfigError
from cefito.serve.settings import ServiceSettings, events_log
from cefito.serve.supervisor import Peers, supervise, unblock

_BACKLOG = 256  # connections that wait to be accepted
_FILES = 16_384  # open files, if the system allows
_OWN_FILES = 128  # of them, not of connections
_LINE = 4096  # bytes of a request's first line that are looked at
_AGAIN = 0.02  # seconds until a connection is offered again to a process that could not take it
_MARGIN = 8.0  # seconds beyond those of requests in progress, until a process must have ended
_LAST = 0.5  # seconds for requests on connections just accepted, or handed over by a peer
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
    shutdown it closes requests whose bodies have not arrived, and streams, which never end. Among
    several processes, it hands itself over to the one that answers a request.

    Args:
        arguments: Positional arguments of uvicorn's protocol.
        seconds: Time limit of the headers of a request, and of reading its answer.
        peers: Processes of the service; None if it is alone.
        read: What the process that handed it over has read.
        named: Further arguments of uvicorn's protocol.
    """

    def __init__(
        self, *arguments: Any, seconds: float, peers: Peers | None, read: bytes = b"", **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._seconds, self._peers = seconds, peers
        self._late: asyncio.TimerHandle | None = None
        self._read = read  # by the process that handed it over; else the begin of a first line
        self._first = not read  # whether no request has come

    @property
    def _waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time until the headers are whole."""
        super().connection_made(transport)
        self._begin_timer()
        if self._read:
            read, self._read = self._read, b""
            super().data_received(read)
            self._end_timer_of_headers()

    def data_received(self, data: bytes) -> None:
        """Limit the time again after an answer, until the next headers are whole."""
        if self._waiting:
            self._begin_timer()
            if self._peers is not None and not self.conn.trailing_data[0]:
                data, self._read = self._read + data, b""
                line, found, _ = data.partition(b"\n")
                if not found and len(line) < _LINE:
                    self._read = data
                    return
                process = self._peers.process_of(line, first=self._first)
                self._first = False
                if process != self._peers.number and not self.transport.get_write_buffer_size():
                    self.transport.pause_reading()
                    self._unset_keepalive_if_required()
                    self._hand_over(self._peers, process, data)
                    return
        super().data_received(data)
        self._end_timer_of_headers()

    def _hand_over(self, peers: Peers, process: int, read: bytes) -> None:
        """Give the connection to another process, as soon as it can take it."""
        if self.transport.is_closing():
            return
        if peers.hand_over(process, self.transport.get_extra_info("socket").fileno(), read):
            self.transport.abort()  # the other process has it
        else:
            self.loop.call_later(_AGAIN, self._hand_over, peers, process, read)

    def _end_timer_of_headers(self) -> None:
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
def metrics_at(host: str, port: int, metrics: Collector) -> Iterator[WSGIServer]:
    """Listen for monitors, which need no token, on a port of their own (ConfigError).

    Args:
        host: Address to listen on.
        port: Port; 0 takes any free port.
        metrics: Metrics.

    Yields:
        The server, which no thread runs yet: a process that is forked inherits no threads.
    """
    with _refused(host, port, "metrics_port"):
        server, thread = start_http_server(port, host, metrics)
    server.shutdown()
    thread.join()
    answer = make_wsgi_app(metrics)

    def answer_at_its_path(request: dict[str, Any], start: Any) -> Any:
        if request["PATH_INFO"] == "/metrics":
            return answer(request, start)
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"metrics are at /metrics\n"]

    server.set_app(answer_at_its_path)
    with server:
        yield server


@contextmanager
def answering(monitors: WSGIServer | None) -> Iterator[None]:
    """Answer monitors, if there are any, in a thread."""
    if monitors is None:
        yield
        return
    thread = Thread(target=monitors.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        monitors.shutdown()
        thread.join()


def address_of(host: str, port: int) -> str:
    """Return the address of a server for browsers."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """A server that is handed connections by its peers, and ends with its supervisor."""

    def __init__(self, config: uvicorn.Config, peers: Peers | None, kept: str) -> None:
        super().__init__(config)
        self._peers, self._kept = peers, kept
        self._accepted: set[asyncio.Task[Any]] = set()
        self._reason = "the supervisor has ended"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End because of a signal, which the log names."""
        self._reason = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, those of peers too."""
        await super().startup(sockets)
        if self._peers is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._peers.receiver, self._take, self._peers)
            loop.add_reader(self._peers.ended, self._end, self._peers)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and finish the requests of those that were accepted."""
        process = "" if self._peers is None else f"process {self._peers.number}: "
        began, running = time.monotonic(), len(self.server_state.tasks)
        seconds = self.config.timeout_graceful_shutdown
        waited = f"requests in progress, which have {seconds} s: {running}"
        events_log.info("%s%s: stopping; %s", process, self._reason, waited)
        for listening in sockets or ():
            with suppress(BlockingIOError):  # none waits any more; closing it would reset them
                while True:
                    self._adopt(listening.accept()[0])
        for server in self.servers:
            server.close()
        self.server_state.default_headers.append((b"connection", b"close"))
        await asyncio.sleep(_LAST)
        if self._peers is not None:
            asyncio.get_running_loop().remove_reader(self._peers.receiver)
        await super().shutdown(sockets)
        sessions = ""
        if self._kept:
            registry = cast("FastAPI", self.config.app).state.service.metrics.registry
            count = int(registry.get_sample_value("cefito_sessions"))
            sessions = f"; live sessions {self._kept}: {count}"
        events_log.info("%sstopped in %.1f s%s", process, time.monotonic() - began, sessions)

    def _take(self, peers: Peers) -> None:
        registry = cast("FastAPI", self.config.app).state.service.metrics.registry
        for connection, read in peers.take(partial(generate_latest, registry)):
            self._adopt(connection, read)

    def _adopt(self, connection: socket.socket, read: bytes = b"") -> None:
        loop, kind = asyncio.get_running_loop(), cast("Any", self.config.http_protocol_class)
        made = partial(
            kind,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            read=read,
        )
        accepted = loop.create_task(loop.connect_accepted_socket(made, connection))
        self._accepted.add(accepted)
        accepted.add_done_callback(self._accepted.discard)

    def _end(self, peers: Peers) -> None:
        asyncio.get_running_loop().remove_reader(peers.ended)
        self.should_exit = True


def make_server(
    app: FastAPI, settings: ServiceSettings, peers: Peers | None = None, *, kept: str = ""
) -> uvicorn.Server:
    """Return the server of an application, with as many connections as there may be open files.

    `peers` are the processes of the service, None if it is alone; the others are as of `serve`.
    """
    seconds = settings.limits.receive_seconds
    return _Server(
        uvicorn.Config(
            app,
            http=cast("Any", partial(Connection, seconds=seconds, peers=peers)),
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
        ),
        peers,
        kept,
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
    ready: Callable[[], None],
    kept: str,
    monitors: WSGIServer | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests within the time for it.

    SIGHUP opens the runs anew. `ready` is called once requests and signals are accepted, and after
    each SIGHUP.

    Args:
        app: The application.
        listening: Bound socket.
        settings: Settings of the service.
        ready: Called once requests are accepted, and after each SIGHUP.
        kept: What becomes of live sessions when it ends, for the log; "" without sessions.
        monitors: Server of the metrics, which the first process runs.
    """
    sys.setswitchinterval(_SWITCH)
    service = app.state.service

    def reload() -> None:
        service.reload()
        ready()

    def begin() -> None:
        unblock()
        ready()

    if (peers := service.peers) is None:
        with answering(monitors):
            _run(make_server(app, settings, kept=kept), listening, begin, reload)
        return

    def work() -> None:
        with answering(None if peers.number else monitors):
            _run(make_server(app, settings, peers, kept=kept), listening, unblock, service.reload)

    ready()
    look = app.state.access.read_again
    patience = settings.limits.drain_seconds + _MARGIN
    supervise(peers, work, reload=reload, look=look, close=listening.close, patience=patience)
    events_log.info("all processes have stopped")


def _run(
    server: uvicorn.Server,
    listening: socket.socket,
    ready: Callable[[], None],
    reload: Callable[[], None],
) -> None:
    """Serve in this process."""
    # uvicorn raises the signal again after its shutdown, but a requested shutdown is no failure.
    signals = (signal.SIGINT, signal.SIGTERM)
    kept = {number: signal.signal(number, server.handle_exit) for number in signals}
    try:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            if hasattr(signal, "SIGHUP"):
                loop = runner.get_loop()
                loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, reload)
            ready()
            runner.run(server.serve([listening]))
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
