"""Searches off the event loop: a bounded queue, a fixed number of threads, deadlines, cancellation.

Cheap searches of one kind that wait together are walked together; that never makes one wait for
another, for nobody waits for company to come. Where it fails, each is done again by itself, so that
a bad one fails alone. Dear searches never take every thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BusyError", "ClosedError", "Engine", "ExpiredError", "Job"]

_FIRST_GUESS = 0.05  # seconds that a search takes, before any was seen
_WEIGHT = 0.1  # of the latest search in the running mean


class BusyError(Exception):
    """The queue is full.

    Attributes:
        seconds: After which there is likely to be room.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"full for about {seconds:.1f} seconds")
        self.seconds = seconds


class ClosedError(Exception):
    """The service is ending and takes no more searches."""


class ExpiredError(Exception):
    """The deadline passed while the search waited."""


@dataclass(eq=False)
class Job:
    """A search that is asked for.

    Attributes:
        work: What is searched; opaque here.
        kind: Jobs of one kind can be walked together; None is alone.
        cheap: Whether it may be walked with others, and takes any thread.
        deadline: By `time.monotonic`, when its answer is due.
        future: What came of it.
        abandoned: Whether nobody waits for it any more.
        together: How many were walked together, it included.
    """

    work: Any
    kind: Hashable | None
    cheap: bool
    deadline: float
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False
    together: int = 1

    def stop(self) -> bool:
        """Whether its search should end with what it has."""
        return self.abandoned or time.monotonic() >= self.deadline


Solve = Callable[[Sequence[Job], Callable[[], bool]], Sequence[Any]]


class Engine:
    """Threads that search, and the queue before them.

    Args:
        solve: Gives the results of some jobs of one kind, asking now and then whether to stop.
        workers: Threads.
        queue: Jobs that may wait.
        together: Most cheap jobs that are walked together.
        prepare: Called in each thread when it begins.
    """

    def __init__(
        self,
        solve: Solve,
        *,
        workers: int,
        queue: int,
        together: int,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._solve, self._prepare = solve, prepare
        self._workers, self._queue, self._together = workers, queue, together
        self._waiting: deque[Job] = deque()
        self._running: list[Sequence[Job]] = []
        self._dear = 0
        self._open, self._ended = False, False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._seconds = _FIRST_GUESS

    @property
    def open(self) -> bool:
        """Whether it takes jobs."""
        return self._open

    @property
    def waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs that are searched now."""
        return sum(map(len, tuple(self._running)))

    def start(self) -> None:
        """Begin to take jobs."""
        self._open, self._ended = True, False
        for number in range(self._workers):
            thread = threading.Thread(target=self._work, name=f"search-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue: all of them or none.

        Raises:
            BusyError: There is no room for them.
            ClosedError: No more are taken.
        """
        with self._changed:
            if not self._open:
                raise ClosedError
            if len(self._waiting) + len(jobs) > self._queue:
                self._forget_abandoned()
            if len(self._waiting) + len(jobs) > self._queue:
                over = len(self._waiting) + len(jobs) - self._queue
                raise BusyError(self._seconds * over / self._workers)
            self._waiting.extend(jobs)
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Take no more jobs, and end when those that there are have ended.

        Args:
            seconds: After which they are stopped with what they have, and those that wait dropped.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            self._open = False
            while (self._waiting or self._running) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            dropped = list(self._waiting)
            self._waiting.clear()
            for jobs in self._running:
                for job in jobs:
                    job.deadline = 0.0
            self._ended = True
            self._changed.notify_all()
        for job in dropped:
            _fail(job, ClosedError())
        for thread in self._threads:
            thread.join(timeout=5)
        self._threads.clear()

    def _forget_abandoned(self) -> None:
        self._waiting = deque(job for job in self._waiting if not job.abandoned)

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (jobs := self._next()) is not None:
            began = time.monotonic()
            try:
                self._do(jobs)
            finally:
                each = (time.monotonic() - began) / len(jobs)
                with self._changed:
                    self._running.remove(jobs)
                    self._dear -= not jobs[0].cheap
                    self._seconds += _WEIGHT * (each - self._seconds)
                    self._changed.notify_all()

    def _next(self) -> list[Job] | None:
        """The jobs that a thread does next, once there are some; None when all has ended."""
        with self._changed:
            while not self._ended:
                jobs = self._taken()
                if jobs:
                    self._running.append(jobs)
                    self._dear += not jobs[0].cheap
                    return jobs
                self._changed.wait()
        return None

    def _taken(self) -> list[Job]:
        """Take the first job that may begin out of the queue, and those that go with it."""
        may_be_dear = self._dear < max(1, self._workers - 1)
        first = next((job for job in self._waiting if job.cheap or may_be_dear), None)
        if first is None:
            return []
        if first.kind is None or not first.cheap:
            self._waiting.remove(first)
            return [first]
        alike = [job for job in self._waiting if job.cheap and job.kind == first.kind]
        jobs = alike[: self._together]
        taken = set(map(id, jobs))
        self._waiting = deque(job for job in self._waiting if id(job) not in taken)
        return jobs

    def _do(self, jobs: Sequence[Job]) -> None:
        live = []
        for job in jobs:
            if job.abandoned:
                job.future.cancel()
            elif job.stop():
                _fail(job, ExpiredError())
            else:
                live.append(job)
        if not live:
            return
        try:
            results = self._solve(live, lambda: all(job.stop() for job in live))
            for job, result in zip(live, results, strict=True):
                job.together = len(live)
                _give(job, result)
        except Exception as problem:
            if len(live) == 1:
                _fail(live[0], problem)
                return
            for job in live:
                self._do([job])


def _give(job: Job, result: Any) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        job.future.set_result(result)


def _fail(job: Job, problem: Exception) -> None:
    with suppress(InvalidStateError):
        job.future.set_exception(problem)
