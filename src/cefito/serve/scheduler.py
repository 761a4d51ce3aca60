"""Searches off the event loop: a bounded queue, worker threads, deadlines and cancellation.

Queued cheap searches of one kind run as one batch, and alone if it fails; none waits for others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

__all__ = ["BusyError", "ClosedError", "ExpiredError", "Scheduler", "SearchJob"]

_FIRST_GUESS = 0.05  # seconds of a search, before any was measured
_WEIGHT = 0.1  # of the latest search in the running mean


class BusyError(Exception):
    """The queue is full."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"full for about {seconds:.1f} seconds")
        self.seconds = seconds  # estimate until it has room


class ClosedError(Exception):
    """The scheduler accepts no more searches."""


class ExpiredError(Exception):
    """The deadline passed before the search began."""


@dataclass(eq=False)
class SearchJob:
    """A search to be run."""

    work: Any  # the query; opaque to the scheduler
    kind: Hashable | None  # jobs of one kind can run as one batch; None runs alone
    expensive: bool  # runs alone and leaves a thread to cheap jobs
    deadline: float  # of its answer, by `time.monotonic`
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False  # nobody waits for the result any more
    together: int = 1  # size of the batch that it ran in

    def stop(self) -> bool:
        """Whether its search should end with the plans found so far."""
        return self.abandoned or time.monotonic() >= self.deadline

    def finish(self, result: Any) -> None:
        """Deliver a result or an exception, unless the future was cancelled."""
        with suppress(InvalidStateError):
            if isinstance(result, Exception):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)


Solve = Callable[[Sequence[SearchJob], Callable[[], bool]], Sequence[Any]]


class Scheduler:
    """Worker threads and their queue."""

    def __init__(
        self,
        solve: Solve,  # results of jobs of one kind; polls its second argument whether to stop
        *,
        workers: int,
        queue: int,  # maximum number of jobs in it
        together: int,  # maximum number of jobs in a batch
        prepare: Callable[[], None] = lambda: None,  # called in each thread when it starts
    ) -> None:
        self._solve, self._prepare = solve, prepare
        self._workers, self._queue, self._together = workers, queue, together
        self._waiting: deque[SearchJob] = deque()
        self._running: list[Sequence[SearchJob]] = []
        self._expensive = 0  # expensive jobs that run
        self.open = False  # whether it accepts jobs
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._seconds = _FIRST_GUESS

    @property
    def waiting(self) -> int:
        """Number of jobs in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of jobs that run."""
        return sum(map(len, tuple(self._running)))

    def start(self) -> None:
        """Accept jobs."""
        self.open = True
        for number in range(self._workers):
            thread = threading.Thread(target=self._work, name=f"search-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, jobs: Sequence[SearchJob]) -> None:
        """Put jobs into the queue: all of them or none (BusyError, ClosedError)."""
        with self._changed:
            if not self.open:
                raise ClosedError
            if len(self._waiting) + len(jobs) > self._queue:
                self._waiting = deque(job for job in self._waiting if not job.abandoned)
            if (over := len(self._waiting) + len(jobs) - self._queue) > 0:
                raise BusyError(self._seconds * over / self._workers)
            self._waiting.extend(jobs)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop the queue, and stop the running jobs with the plans found so far."""
        with self._changed:
            self.open = False
            dropped = list(self._waiting)
            self._waiting.clear()
            for jobs in self._running:
                for job in jobs:
                    job.deadline = 0.0
            self._changed.notify_all()
        for job in dropped:
            job.finish(ClosedError())
        for thread in self._threads:
            thread.join(timeout=5)
        self._threads.clear()

    def _work(self) -> None:
        self._prepare()
        while jobs := self._next():
            began = time.monotonic()
            try:
                self._run([job for job in jobs if _is_due(job)])
            finally:
                each = (time.monotonic() - began) / len(jobs)
                with self._changed:
                    self._running.remove(jobs)
                    self._expensive -= jobs[0].expensive
                    self._seconds += _WEIGHT * (each - self._seconds)
                    self._changed.notify_all()

    def _next(self) -> list[SearchJob]:
        """Wait for the next batch of a thread; empty after closing."""
        with self._changed:
            while self.open:
                if jobs := self._take():
                    self._running.append(jobs)
                    self._expensive += jobs[0].expensive
                    return jobs
                self._changed.wait()
        return []

    def _take(self) -> list[SearchJob]:
        """Take the first job that may run, with its batch, out of the queue."""
        room = self._expensive < max(1, self._workers - 1)
        first = next((job for job in self._waiting if room or not job.expensive), None)
        if first is None:
            return []
        jobs = [first]
        if first.kind is not None and not first.expensive:
            alike = (job for job in self._waiting if job.kind == first.kind and not job.expensive)
            jobs = list(islice(alike, self._together))
        taken = set(map(id, jobs))
        self._waiting = deque(job for job in self._waiting if id(job) not in taken)
        return jobs

    def _run(self, jobs: Sequence[SearchJob]) -> None:
        if not jobs:
            return
        try:
            results = self._solve(jobs, lambda: all(job.stop() for job in jobs))
            for job, result in zip(jobs, results, strict=True):
                job.together = len(jobs)
                job.finish(result)
        except Exception as problem:
            if len(jobs) == 1:
                jobs[0].finish(problem)
                return
            for job in filter(_is_due, jobs):
                self._run([job])


def _is_due(job: SearchJob) -> bool:
    """Whether a job should begin; otherwise its future is finished here."""
    if job.abandoned:
        job.future.cancel()
    elif job.stop():
        job.finish(ExpiredError())
    else:
        return True
    return False
