"""Several processes of a service: they share its port, and each has sessions of its own.

A supervisor opens the runs, forks the processes and forks another one in the place of one that
ends. Whichever of them accepts a connection reads the first line of a request. If the request is of
another process's session, it hands the connection over, with what was read, and has no part in it
from then on. What is handed to a process that has ended waits for the one in its place.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.requests import Request

logger = logging.getLogger(__name__)

_OF_SESSION = re.compile(rb"[A-Z]+ /v1/sessions/([^/? ]+)")
_OF_PROCESS = re.compile(rb"GET /metrics\?process=([0-9]{1,4}) ")
_OPENING = b"POST /v1/sessions "
_TOOLS = b"POST /mcp "
_PATIENCE = 2.0  # seconds for another process to tell its metrics
_SOON = 1.0  # seconds of a process that ended at once; the next one waits as long


@dataclass
class Peers:
    """A process among those of a service, and the sockets on which it is handed connections."""

    number: int  # of this process, from 0
    receivers: Sequence[socket.socket]  # of datagrams, one a process; none waits
    senders: Sequence[socket.socket]
    supervisor: int  # a pipe that ends with the supervisor
    turn: int = 0

    def owner(self, id: str | bytes) -> int:
        """Return the number of the process that has a session."""
        return zlib.crc32(id.encode() if isinstance(id, str) else id) % len(self.receivers)

    def owns(self, id: str) -> bool:
        """Return whether a session is of this process."""
        return self.owner(id) == self.number

    def process_of(self, line: bytes, *, first: bool) -> int:
        """Return the number of the process that answers a request.

        Connections, and sessions that are opened, are dealt out in turn. Tools are answered by
        process 0, since the session that a call is about stands in its body.

        Args:
            line: First line of the request.
            first: Whether it is the first one of its connection.
        """
        if session := _OF_SESSION.match(line):
            return self.owner(unquote_to_bytes(session[1]))
        if (process := _OF_PROCESS.match(line)) and int(process[1]) < len(self.receivers):
            return int(process[1])
        if line.startswith(_TOOLS):
            return 0
        if first or line.startswith(_OPENING):
            self.turn = (self.turn + 1) % len(self.receivers)
            return self.turn
        return self.number

    def send(self, number: int, connection: int, read: bytes) -> bool:
        """Hand a connection over; return False if the process cannot take it yet.

        Args:
            number: Of the process.
            connection: File descriptor, which the caller closes.
            read: What was read from it.
        """
        with tempfile.TemporaryFile() as file:  # a datagram holds less
            file.write(read)
            file.flush()
            try:
                socket.send_fds(self.senders[number], [b"."], [connection, file.fileno()])
            except OSError:  # too many wait there
                return False
        return True

    def receive(self) -> Iterator[tuple[socket.socket, bytes]]:
        """Yield the connections that were handed to this process, and what was read from them."""
        while True:
            try:
                files = socket.recv_fds(self.receivers[self.number], 1, 2)[1]
            except OSError:
                return
            for file in files:
                os.set_inheritable(file, False)
            if len(files) < 2:  # too many files are open
                for file in files:
                    os.close(file)
                continue
            with os.fdopen(files[1], "rb") as read:
                read.seek(0)
                yield socket.socket(fileno=files[0]), read.read()

    async def metrics(self, request: Request, page: bytes) -> bytes:
        """Return the metrics of all processes, with the label `process`.

        One that does not answer in time is left out.

        Args:
            request: Request for this process's metrics.
            page: Its answer.
        """
        others = [number for number in range(len(self.receivers)) if number != self.number]
        pages = await asyncio.gather(*(self._page(request, number) for number in others))
        merged: dict[str, Metric] = {}
        for number, text in zip((self.number, *others), (page, *pages), strict=True):
            for metric in text_string_to_metric_families(text.decode()):
                of_all = merged.setdefault(metric.name, metric)
                samples, metric.samples = metric.samples, []
                for sample in samples:
                    labels = {"process": str(number), **sample.labels}
                    of_all.samples.append(sample._replace(labels=labels))
        return generate_latest(_Collected(merged.values()))

    async def _page(self, request: Request, number: int) -> bytes:
        """Return the metrics of another process, which is asked as by a client; b"" if late."""
        named = ("host", "authorization")
        headers = [f"{name}: {request.headers[name]}" for name in named if name in request.headers]
        lines = [f"GET /metrics?process={number} HTTP/1.1", *headers, "connection: close", "", ""]
        ours, theirs = socket.socketpair()
        with theirs:
            sent = self.send(number, theirs.fileno(), "\r\n".join(lines).encode())
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(_PATIENCE if sent else 0):
                head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        except (TimeoutError, OSError):
            return b""
        finally:
            writer.close()
        return body if head.startswith(b"HTTP/1.1 200 ") else b""


class _Collected(Collector):
    """Metrics that were collected."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def supervise(
    count: int,
    work: Callable[[Peers], None],
    *,
    reload: Callable[[], None],
    close: Callable[[], None],
) -> None:
    """Run processes until SIGTERM or SIGINT, and another one in the place of one that ends.

    SIGTERM and SIGHUP are sent on to all of them. If the supervisor is killed, they end, too.

    Args:
        count: Number of processes.
        work: What each does; it unblocks signals once it handles them.
        reload: Called at SIGHUP, for the processes that begin later.
        close: Called at SIGTERM and SIGINT, to accept no more connections.
    """
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
    for end in chain.from_iterable(pairs):
        end.setblocking(False)
    receivers, senders = zip(*pairs, strict=True)
    ended, alive = os.pipe()
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())

    def begin(number: int) -> int:
        if process := os.fork():
            return process
        os.close(alive)
        _work(lambda: work(Peers(number, receivers, senders, ended, number)))

    gc.collect()
    gc.freeze()  # so that collections do not touch, and copy, what the processes share
    ending = False
    processes = {begin(number): (number, time.monotonic()) for number in range(count)}
    try:
        while processes:
            arrived = signal.sigwait(_signals())
            if arrived != signal.SIGCHLD:
                ending |= arrived != signal.SIGHUP
                for process in processes:
                    os.kill(process, signal.SIGTERM if ending else signal.SIGHUP)
                (close if ending else reload)()
            for process, (number, began) in [*processes.items()]:
                waited, status = os.waitpid(process, os.WNOHANG)
                if waited:
                    del processes[process]
                if waited and not ending:
                    code = os.waitstatus_to_exitcode(status)
                    how = f"signal {-code}" if code < 0 else f"exit code {code}"
                    logger.warning("process %d ended (%s); another one begins", process, how)
                    time.sleep(max(0.0, min(_SOON, began + _SOON - time.monotonic())))
                    processes[begin(number)] = number, time.monotonic()
    finally:
        os.close(alive)
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)
        for end in chain.from_iterable(pairs):
            end.close()
        os.close(ended)


def unblock() -> None:
    """Accept the signals that `supervise` blocks."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())


def _signals() -> set[signal.Signals]:
    return {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def _work(work: Callable[[], None]) -> NoReturn:
    """Work in a process that was forked, and end it."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
