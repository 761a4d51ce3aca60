"""Several processes of a service: they share its port, and each has sessions of its own.

A supervisor opens the runs, forks the processes and forks another one in the place of one that
ends. Whichever of them accepts a connection reads the first line of a request. If the request is of
another process's session, it hands the connection over, with what was read, and has no part in it
from then on. What is handed to a process that has ended waits for the one in its place.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import re
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import NoReturn, Self
from urllib.parse import unquote

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

_OF_SESSION = re.compile(rb"[A-Z]+ /v1/sessions/([^/? ]+)")
_OPENING = b"POST /v1/sessions "
_TOOLS = b"POST /mcp "
_CONNECTION, _METRICS = b"c", b"m"  # what is sent: a connection, or a socket to write metrics to
_END = b"# EOF\n"  # of metrics
_PATIENCE = 2.0  # seconds for a process to tell its metrics
_SOON = 1.0  # seconds between two processes in one place, and between two looks


class Peers(Collector):
    """The processes of a service, this one among them, and the sockets on which they hand over.

    Metrics that are collected from it are those of all processes, with the label `process`; those
    of a process that does not answer in time are left out.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = -1  # of this process, from 0; −1 for the supervisor
        # a pair for each process, the first of which it reads; datagrams keep their bounds
        self._pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for end in chain.from_iterable(self._pairs):
            end.setblocking(False)
        self._turn = 0
        self.ended, self._alive = os.pipe()  # the first ends when the supervisor does

    @property
    def receiver(self) -> socket.socket:
        """What this process is sent."""
        return self._pairs[self.number][0]

    def become(self, number: int) -> None:
        """Be a process of this number, once it has been forked."""
        self.number = self._turn = number
        os.close(self._alive)

    def close(self) -> None:
        """Close all sockets, in the supervisor."""
        for end in chain.from_iterable(self._pairs):
            end.close()
        os.close(self.ended)
        os.close(self._alive)

    def owner(self, id: str) -> int:
        """Return the number of the process that has a session."""
        return zlib.crc32(id.encode("utf-8", "replace")) % self.count

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
            return self.owner(unquote(session[1].decode("latin-1")))
        if line.startswith(_TOOLS):
            return 0
        if first or line.startswith(_OPENING):
            self._turn = (self._turn + 1) % self.count
            return self._turn
        return self.number

    def hand_over(self, number: int, connection: int, read: bytes) -> bool:
        """Hand a connection over; return False if the process cannot take it yet.

        Args:
            number: Of the process.
            connection: File descriptor, which the caller closes.
            read: What was read from it.
        """
        with tempfile.TemporaryFile() as file:  # a datagram holds less
            file.write(read)
            file.flush()
            return self._send(number, _CONNECTION, connection, file.fileno())

    def take(self, page: Callable[[], bytes]) -> Iterator[tuple[socket.socket, bytes]]:
        """Yield the connections that were handed to this process, and what was read from them.

        Args:
            page: Makes its metrics, which others are told.
        """
        while True:
            try:
                kind, files, _, _ = socket.recv_fds(self.receiver, 1, 2)
            except OSError:
                return
            for file in files:
                os.set_inheritable(file, False)
            if kind == _CONNECTION and len(files) == 2:
                with os.fdopen(files[1], "rb") as read:
                    read.seek(0)
                    yield socket.socket(fileno=files[0]), read.read()
            elif kind == _METRICS and files:
                with socket.socket(fileno=files[0]) as asking, suppress(OSError):
                    asking.settimeout(_PATIENCE)
                    asking.sendall(page())
            else:  # too many files are open
                for file in files:
                    os.close(file)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all processes; not in the event loop of one."""
        merged: dict[str, Metric] = {}
        for number in range(self.count):
            page = self._page(number).decode()
            for metric in text_string_to_metric_families(page):  # type: ignore[no-untyped-call]
                of_all = merged.setdefault(metric.name, metric)
                samples, metric.samples = metric.samples, []
                for sample in samples:
                    labels = {"process": str(number), **sample.labels}
                    of_all.samples.append(sample._replace(labels=labels))
        return merged.values()

    def restricted_registry(self, _: Iterable[str]) -> Self:
        """Return all metrics, whichever names a monitor asks for."""
        return self

    def _page(self, number: int) -> bytes:
        """Return the metrics of a process; none if they come late."""
        ours, theirs = socket.socketpair()
        with ours, suppress(OSError):
            ours.settimeout(_PATIENCE)
            with theirs:
                sent = self._send(number, _METRICS, theirs.fileno())
            if sent:
                page = b"".join(iter(partial(ours.recv, 1 << 16), b""))
                return page if page.endswith(_END) else _END  # its process ended meanwhile
        return _END

    def _send(self, number: int, kind: bytes, *files: int) -> bool:
        try:
            socket.send_fds(self._pairs[number][1], [kind], files)
        except OSError:  # too much waits there
            return False
        return True


def supervise(
    peers: Peers,
    work: Callable[[], None],
    *,
    reload: Callable[[], None],
    look: Callable[[], None],
    close: Callable[[], None],
    patience: float,
) -> None:
    """Run processes until SIGTERM or SIGINT, and another one in the place of one that ends.

    SIGTERM and SIGHUP are sent on to all of them. If the supervisor is killed, they end, too.

    Args:
        peers: The processes.
        work: What each does, which has its number; it unblocks signals once it handles them.
        reload: Called at SIGHUP, for the processes that begin later.
        look: Called each second, to read the tokens that the processes that begin later know.
        close: Called at SIGTERM and SIGINT, to accept no more connections.
        patience: Seconds from then on, after which processes that have not ended are killed.
    """
    arriving, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    kept = {number: signal.signal(number, _wake) for number in _signals()}
    kept_wakeup = signal.set_wakeup_fd(wakeup)

    def begin(number: int) -> int:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
        if not (process := os.fork()):
            signal.set_wakeup_fd(-1)
            peers.become(number)
            _end_after(work)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process

    unblock()
    gc.collect()
    gc.freeze()  # so that collections do not touch, and copy, what the processes share
    ending, last = False, math.inf  # when those that have not ended are killed
    processes = {begin(number): (number, time.monotonic()) for number in range(peers.count)}
    while processes:
        while not select.select([arriving], [], [], _SOON)[0]:
            look()
            if time.monotonic() >= last:
                last = math.inf
                _kill(processes)
        arrived = {*os.read(arriving, 1024)}
        for number in arrived & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            ending |= number != signal.SIGHUP
            last = min(last, time.monotonic() + patience) if ending else last
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
                time.sleep(max(0.0, min(_SOON, began + _SOON - time.monotonic())))
                successor = begin(number)
                processes[successor] = number, time.monotonic()
                said = "process %d (%d) ended (%s); %d is in its place"
                logger.warning(said, number, process, how, successor)
    signal.set_wakeup_fd(kept_wakeup)
    for kept_number, handler in kept.items():
        signal.signal(kept_number, handler)
    os.close(arriving)
    os.close(wakeup)
    peers.close()


def _kill(processes: Mapping[int, tuple[int, float]]) -> None:
    for process, (number, _) in processes.items():
        logger.warning("process %d (%d) does not end; it is killed", number, process)
        os.kill(process, signal.SIGKILL)


def _wake(*_: object) -> None:
    """Handle a signal, whose number is read elsewhere."""


def unblock() -> None:
    """Accept the signals that are blocked when a process begins or is forked."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())


def _signals() -> set[signal.Signals]:
    return {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def _end_after(work: Callable[[], None]) -> NoReturn:
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
