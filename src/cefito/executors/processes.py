"""Jobs in several processes of this machine, each with its share of the cores.

In a worker process jobs come in and outcomes go out through one pipe. It ends when its pipe is
closed or its parent has ended. Only the parent handles interrupts.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from cefito.executors.base import Executor, Failed, JobQueue, Killed, attempt, failure

_READY = b"ready"
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables for the number of threads of libraries."""


def work(
    connection: Connection[Any, Any],
    threads: int,
    outcome: Callable[[CalledFunction, bytes], bytes] | None = None,
) -> None:
    """Run jobs until there are no more; the pipe gives the pickled function, then arguments.

    Args:
        connection: End of the pipe in this process.
        threads: Threads of torch in this process.
        outcome: Calls the function with an argument, and returns the bytes to send; by default they
            are pickled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for setting in THREAD_SETTINGS:  # libraries read them when they are loaded
        os.environ[setting] = str(threads)
    try:
        connection.send_bytes(_READY)
        function = CalledFunction(connection.recv_bytes(), threads)
        while True:
            connection.send_bytes((outcome or pickled_outcome)(function, connection.recv_bytes()))
    except (EOFError, OSError):  # the parent closed the pipe
        return


class CalledFunction:
    """A function that is unpickled by its first call, which may fail like a job."""

    def __init__(self, pickled: bytes, threads: int) -> None:
        self.pickled, self.threads = pickled, threads
        self.function: Any = None

    def __call__(self, argument: bytes) -> Any:
        """Call the function with a pickled argument."""
        if self.function is None:
            function = pickle.loads(self.pickled)
            if "torch" in sys.modules:  # perhaps loaded before the environment was set
                sys.modules["torch"].set_num_threads(self.threads)
            self.function = function
        return self.function(pickle.loads(argument))


def pickled_outcome(function: CalledFunction, argument: bytes) -> bytes:
    """Call a function and pickle the outcome; a value that cannot be pickled is a failure."""
    try:
        return bytes(ForkingPickler.dumps(attempt(function, argument)))
    except Exception as problem:
        return bytes(ForkingPickler.dumps(failure(problem)))


def _end_with_parent() -> None:
    """End this process at once when its parent has ended."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


_ROUND = 1.0  # seconds between two looks at silent workers
_PATIENCE = 5.0  # seconds in which a worker must end


class ProcessExecutor(Executor):
    """Runs jobs in other processes, which share the cores of this one.

    If a process is killed, only its current job is lost; another process takes its place.
    """

    def _run(self, function: Callable[[Any], Any], jobs: JobQueue[Any, Any], workers: int) -> None:
        pickled, threads = bytes(ForkingPickler.dumps(function)), threads_each(workers)
        running: list[_Worker] = []
        try:
            while jobs.waiting or running:
                while jobs.waiting and len(running) < workers:
                    running.append(_Worker(threads, pickled, jobs))
                ready = [
                    handle
                    for worker in running
                    for handle in (worker.connection, worker.process.sentinel)
                ]
                wait(ready, timeout=_ROUND)
                for worker in list(running):
                    if not worker.continues():
                        running.remove(worker)
                        worker.end(patience=_PATIENCE)
        finally:
            for worker in running:
                worker.end(patience=0)


class WorkerProcess:
    """A worker process as its parent sees it; for `outcome` see `work`."""

    def __init__(
        self, threads: int, outcome: Callable[[CalledFunction, bytes], bytes] | None = None
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=work, args=(theirs, threads, outcome), daemon=True
        )
        try:
            self.process.start()
        finally:
            theirs.close()  # so that the pipe ends with the worker

    def end(self, *, patience: float) -> None:
        """End the process and wait for it; for `patience` seconds it may end by itself."""
        self.connection.close()
        self.process.join(patience)
        for stop in (self.process.terminate, self.process.kill):
            if self.process.exitcode is None:
                stop()
                self.process.join(_PATIENCE)


class _Worker(WorkerProcess):
    """A worker of a call of `map`."""

    def __init__(self, threads: int, function: bytes, jobs: JobQueue[Any, Any]) -> None:
        self.jobs, self.function = jobs, function
        self.group: deque[int] = deque()  # its jobs, the current one first
        self.ready = False  # whether it has said that it takes jobs
        super().__init__(threads)

    def continues(self) -> bool:
        """Take the worker's messages and give it its next job; return whether it has one."""
        # The exit code is read before the messages: a worker that has ended sends nothing more, so
        # a job without an answer is lost. A worker that ends later is handled in the next round.
        code = self.process.exitcode
        messages: list[bytes] = []
        with suppress(EOFError, OSError):
            while self.connection.poll():
                messages.append(self.connection.recv_bytes())
        for message in messages:
            self._take(message)
        if code is not None:
            self._lose(code)
            return False
        return bool(self.group) or not self.ready

    def _take(self, message: bytes) -> None:
        """Note the outcome in a message and send the next job; the first message has none."""
        if self.ready:
            try:
                outcome = pickle.loads(message)
            except Exception as problem:
                outcome = failure(problem)
            self.jobs.note(self.group.popleft(), outcome)
        else:
            self.ready = True
            _send(self.connection, self.function)
        self.group, argument = self.jobs.next(self.group)
        if argument is not None:
            _send(self.connection, argument)

    def _lose(self, code: int) -> None:
        """Note the outcome of the current job after the process has ended."""
        lost: Failed | Killed = Failed(f"its process ended with exit code {code}")
        if code < 0:
            lost = Killed(-code)
        elif not self.ready:
            lost = Failed(f"its process could not begin (exit code {code})")
        if not self.ready and self.jobs.waiting:  # so that it does not go on for ever
            self.group = self.jobs.waiting.popleft()
        alone = code < 0 or self.ready  # otherwise the next process could not begin either
        for _ in range(min(1, len(self.group)) if alone else len(self.group)):
            self.jobs.note(self.group.popleft(), lost)
        if self.group:
            self.jobs.waiting.append(self.group)


def _send(connection: Connection[Any, Any], message: bytes) -> None:
    with suppress(OSError):  # the worker has ended, which is handled in the next round
        connection.send_bytes(message)


def threads_each(workers: int) -> int:
    """Return the threads of each worker, so that they share the threads of this process.

    OMP_NUM_THREADS is the number for each worker, as long as there are cores for all.
    """
    setting, threads = os.environ.get("OMP_NUM_THREADS", ""), cores()
    if "torch" in sys.modules:
        threads = int(sys.modules["torch"].get_num_threads())
    elif setting.isdecimal():
        threads = int(setting)
    return max(1, min(threads, cores() // workers) if setting.isdecimal() else threads // workers)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
