"""Jobs in several processes of this machine, each with its share of the cores."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, Generic

from cefito.executors.base import (
    Argument,
    Failed,
    Killed,
    Outcome,
    Value,
    failure,
    ignore,
    queues,
)
from cefito.executors.worker import work

__all__ = ["ProcessExecutor", "threads_each"]

_SETTING = "OMP_NUM_THREADS"
_ROUND = 1.0  # seconds between two looks at workers that say nothing
_PATIENCE = 5.0  # seconds that a worker has to end when it is told to


@dataclass(frozen=True)
class ProcessExecutor:
    """Works on jobs in processes of their own, which share the cores of this one.

    A process that is killed takes with it no more than the job that it was at; another one takes
    its place.

    Attributes:
        workers: How many processes.
    """

    in_process: ClassVar[bool] = False
    workers: int = 1

    def map(
        self,
        function: Callable[[Argument], Value],
        arguments: Sequence[Argument],
        *,
        groups: Sequence[Hashable] | None = None,
        advance: Callable[[float], None] = ignore,
    ) -> list[Outcome[Value]]:
        """Call a function with every argument; see `Executor.map`.

        Raises:
            Exception: The function cannot be pickled.
        """
        if not arguments:
            return []
        pickled = bytes(ForkingPickler.dumps(function))
        mapping: _Mapping[Argument, Value] = _Mapping(pickled, arguments, groups, advance)
        return mapping.run(self.workers)


class _Worker:
    """A worker process as its parent sees it.

    Attributes:
        process: The process.
        connection: The parent's end of its pipe.
        queue: Jobs it has still to do, the one that it is at first; all of one group.
        began: Whether it has said that it takes jobs.
    """

    def __init__(self, threads: int, queue: deque[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=work, args=(theirs, threads), daemon=True
        )
        self.queue, self.began = queue, False
        try:
            self.process.start()
        finally:
            theirs.close()  # so that the pipe ends with the worker

    def messages(self) -> list[Any]:
        """All that it has sent and is not read yet; a message that was cut off is left out."""
        messages: list[Any] = []
        try:
            while self.connection.poll():
                messages.append(self.connection.recv_bytes())
        except (EOFError, OSError):
            pass
        return messages

    def end(self, *, patience: float) -> None:
        """Have the process end, and wait until it has.

        Args:
            patience: Seconds that it has to end of itself, for want of further jobs.
        """
        self.connection.close()
        for urge, seconds in ((None, patience), (self.process.terminate, _PATIENCE)):
            if self.process.exitcode is None:
                if urge is not None:
                    urge()
                self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


class _Mapping(Generic[Argument, Value]):
    """One call of `map`: which jobs wait, which are worked on, and what became of the others."""

    def __init__(
        self,
        function: bytes,
        arguments: Sequence[Argument],
        groups: Sequence[Hashable] | None,
        advance: Callable[[float], None],
    ) -> None:
        self.function, self.arguments, self.advance = function, arguments, advance
        self.outcomes: dict[int, Outcome[Value]] = {}
        self.workers: list[_Worker] = []
        self.waiting = queues(len(arguments), groups)

    def run(self, most: int) -> list[Outcome[Value]]:
        """Work on all jobs in at most so many processes."""
        most = max(1, min(most, len(self.waiting)))
        threads = threads_each(most)
        try:
            while self.waiting or self.workers:
                while self.waiting and len(self.workers) < most:
                    self.workers.append(_Worker(threads, self.waiting.popleft()))
                wait(
                    [
                        source
                        for worker in self.workers
                        for source in (worker.connection, worker.process.sentinel)
                    ],
                    timeout=_ROUND,
                )
                for worker in list(self.workers):
                    if not self._goes_on(worker):
                        self.workers.remove(worker)
                        worker.end(patience=_PATIENCE)
        finally:
            for worker in self.workers:
                worker.end(patience=0)
        return [self.outcomes[job] for job in range(len(self.arguments))]

    def _goes_on(self, worker: _Worker) -> bool:
        """Take what a worker has sent, give it its next job; whether it still has one."""
        # Asked once, and before its messages are read: a worker that has ended by now sends nothing
        # more, so that what it has not answered it never will. One that ends later is met in the
        # next round.
        code = worker.process.exitcode
        for message in worker.messages():
            self._take(worker, message)
        if code is not None:
            self._bury(worker, code)
            return False
        return bool(worker.queue)

    def _take(self, worker: _Worker, message: bytes) -> None:
        """Note what became of a worker's job, and send it the next one."""
        if worker.began:
            try:
                outcome = pickle.loads(message)
            except Exception as problem:
                outcome = failure(problem)
            self._note(worker.queue.popleft(), outcome)
        else:
            worker.began = True  # the first message says so
            _send(worker.connection, self.function)
        while worker.queue or self.waiting:
            worker.queue = worker.queue or self.waiting.popleft()
            try:
                argument = bytes(ForkingPickler.dumps(self.arguments[worker.queue[0]]))
            except Exception as problem:
                self._note(worker.queue.popleft(), failure(problem))
            else:
                _send(worker.connection, argument)
                return

    def _bury(self, worker: _Worker, code: int) -> None:
        """Note what became of the job of a worker that has ended; another one does the rest."""
        queue = worker.queue
        if code < 0:
            lost: Failed | Killed = Killed(-code)
        elif worker.began:
            lost = Failed(f"its process ended with exit code {code}")
        else:
            lost = Failed(f"its process could not begin (exit code {code})")
        while queue:
            self._note(queue.popleft(), lost)
            if code < 0 or worker.began:  # else the next one could not begin either
                break
        if queue:
            self.waiting.append(queue)

    def _note(self, job: int, outcome: Outcome[Value]) -> None:
        assert job not in self.outcomes
        self.outcomes[job] = outcome
        self.advance(1)


def _send(connection: Connection[Any, Any], message: bytes) -> None:
    """Send a message; a worker that ends meanwhile is met in the next round."""
    try:
        connection.send_bytes(message)
    except OSError:
        return


def threads_each(workers: int) -> int:
    """Threads that each of some workers may compute with, so that all have a core.

    They share those of this process. OMP_NUM_THREADS is what each may have, as long as there are
    cores for all.
    """
    if os.environ.get(_SETTING, "").isdecimal():
        return max(1, min(_threads(), _cores() // workers))
    return max(1, _threads() // workers)


def _threads() -> int:
    """Threads that this process computes with."""
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    setting = os.environ.get(_SETTING, "")
    return int(setting) if setting.isdecimal() else _cores()


def _cores() -> int:
    """Cores that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
