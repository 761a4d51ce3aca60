"""Searches off the event loop: a bounded queue, worker threads, deadlines and cancellation.

Clients share the threads. Cheap searches of one kind that are in the queue run as one batch of
limited time, and one by one if it fails; no search waits for others to come. Brief searches hold
the interpreter nearly all the time, so that two threads would only take turns: their batches run
one after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

logger = logging.getLogger(__name__)

_FIRST_GUESS = 0.05  # seconds of a search, before any was measured
_FIRST_COST = 0.002  # seconds of processor time of the same
_WEIGHT = 0.1  # of the latest search in the running mean
TURN = 0.02  # seconds of processor time that a batch should take at most
_BRIEF = 0.005  # seconds of processor time below which a search is brief
_KEPT = 1000  # clients, and kinds of jobs, that are remembered


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
    expensive: bool  # runs alone
    deadline: float  # of its answer, by `time.monotonic`
    client: str = ""  # whose share of the threads it takes
    alone: Hashable | None = None  # no two jobs with the same one run at a time
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False  # nobody waits for the result any more
    together: int = 1  # size of the batch that it ran in

    def stop(self) -> bool:
        """Whether its search should end with the plans found so far."""
        return self.abandoned or time.monotonic() >= self.deadline

    def finish(self, result: Any) -> None:
        """Deliver a result or an exception, unless the future was cancelled."""
        with suppress(InvalidStateError):
            if not isinstance(result, Exception):
                self.future.set_result(result)
                return
            if self.future.cancelled():  # so that no defect is lost with its client
                logger.debug("a search that nobody waits for failed", exc_info=result)
            self.future.set_exception(result)


Solve = Callable[[Sequence[SearchJob], Callable[[], bool]], Sequence[Any]]


class _Queue:
    """Jobs of several clients, of which the one that was served least comes next.

    This is start-time fair queueing (Goyal et al., 1996), where each job has the same weight: a
    client that was idle comes before those with many jobs, but its idle time gives it no more.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, deque[SearchJob]] = {}  # by client; none is empty
        self._served: dict[str, int] = {}  # jobs by client, or more after it was idle
        self._turn = 0  # jobs by the client that came last, before

    def __len__(self) -> int:
        return sum(map(len, tuple(self.jobs.values())))

    def put(self, job: SearchJob) -> None:
        """Append a job."""
        client = job.client
        if client not in self.jobs:
            if len(self._served) > _KEPT:
                kept = self._served.items()
                self._served = {name: n for name, n in kept if n > self._turn or name in self.jobs}
            self._served[client] = max(self._served.get(client, 0), self._turn)
        self.jobs.setdefault(client, deque()).append(job)

    def drop_abandoned(self) -> None:
        """Forget the jobs that nobody waits for."""
        self.jobs = {
            client: deque(left)
            for client, jobs in self.jobs.items()
            if (left := [job for job in jobs if not job.abandoned])
        }

    def take(
        self, may_run: Callable[[SearchJob], bool], most: Callable[[Hashable], int]
    ) -> list[SearchJob]:
        """Take the next job out, with jobs of its kind up to `most` of it; empty if none may run.

        They are of the same client, or of clients that have no more jobs: a batch of a client with
        one job is not filled with the many jobs of others.
        """
        count = {client: len(jobs) for client, jobs in self.jobs.items()}
        order = sorted(count, key=lambda client: (self._served[client], count[client]))
        first = next((job for name in order for job in self.jobs[name] if may_run(job)), None)
        if first is None:
            return []
        client, taken = first.client, [first]
        self._turn = max(self._turn, self._served[client])
        if first.kind is not None and not first.expensive:
            others = [name for name in order if name != client and count[name] <= count[client]]
            alike = (
                job
                for name in (client, *others)
                for job in self.jobs[name]
                if job.kind == first.kind and not job.expensive
            )
            taken = list(islice(alike, most(first.kind)))
        for job in taken:
            self._served[job.client] += 1
            self.jobs[job.client].remove(job)
            if not self.jobs[job.client]:
                del self.jobs[job.client]
        return taken


class Scheduler:
    """Worker threads and their queue.

    Args:
        solve: Returns results of jobs of one kind; polls its second argument whether to stop.
        workers: Number of threads.
        queue: Maximum number of jobs in it; beyond it, a client still has an equal share.
        together: Maximum number of jobs in a batch.
        prepare: Called in each thread when it starts.
    """

    def __init__(
        self,
        solve: Solve,
        *,
        workers: int,
        queue: int,
        together: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._solve, self._prepare = solve, prepare
        self._workers, self._most, self._together = workers, queue, together
        self._queue = _Queue()
        self._costs: dict[Hashable, float] = {}  # mean processor time of a job, by kind
        self._cost = _FIRST_COST  # the same of all
        self._running: list[Sequence[SearchJob]] = []
        self.open = False  # whether it accepts jobs
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._seconds = _FIRST_GUESS

    @property
    def waiting(self) -> int:
        """Number of jobs in the queue."""
        return len(self._queue)

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

    def submit(self, job: SearchJob) -> None:
        """Put a job into the queue (BusyError, ClosedError)."""
        with self._changed:
            if not self.open:
                raise ClosedError
            if self.waiting >= self._most:
                self._queue.drop_abandoned()
            over, jobs = self.waiting + 1 - self._most, self._queue.jobs
            share = self._most // len({*jobs, job.client})
            if over > 0 and len(jobs.get(job.client, ())) >= max(1, share):
                raise BusyError(self._seconds * over / self._workers)
            self._queue.put(job)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop the queue, and stop the running jobs with the plans found so far."""
        with self._changed:
            self.open = False
            dropped = [job for jobs in self._queue.jobs.values() for job in jobs]
            self._queue.jobs.clear()
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
        while self._finish(self._next()):  # an idle thread holds no job, whose run may be replaced
            pass

    def _finish(self, jobs: Sequence[SearchJob]) -> bool:
        """Run a batch, and return whether there was one; there is none after closing."""
        if not jobs:
            return False
        began, cost = time.monotonic(), time.thread_time()
        try:
            self._run([job for job in jobs if _is_due(job)])
        finally:
            job_seconds = (time.monotonic() - began) / len(jobs)
            with self._changed:
                self._running.remove(jobs)
                self._seconds += _WEIGHT * (job_seconds - self._seconds)
                self._note((time.thread_time() - cost) / len(jobs), jobs[0].kind)
                self._changed.notify_all()
        return True

    def _next(self) -> list[SearchJob]:
        """Wait for the next batch of a thread; empty after closing."""
        with self._changed:
            while self.open:
                if jobs := self._take():
                    self._running.append(jobs)
                    return jobs
                self._changed.wait()
        return []

    def _take(self) -> list[SearchJob]:
        """Take the next batch out of the queue."""
        expensive = sum(jobs[0].expensive for jobs in self._running)
        room = expensive < max(1, self._workers - 1)  # they leave a thread to others
        held = {job.alone for jobs in self._running for job in jobs} - {None}
        brief = any(self._is_brief(jobs[0]) for jobs in self._running)

        def may_run(job: SearchJob) -> bool:
            if job.alone in held or (brief and self._is_brief(job)):
                return False
            return room or not job.expensive

        return self._queue.take(may_run, self._fitting)

    def _is_brief(self, job: SearchJob) -> bool:
        """Whether a second thread would only slow a job down."""
        batched = job.kind is not None and not job.expensive
        return batched and self._costs.get(job.kind, _BRIEF) < _BRIEF

    def _fitting(self, kind: Hashable) -> int:
        """Number of jobs of a kind that fit a batch."""
        cost = self._costs.get(kind, self._cost)
        return int(max(1, min(self._together, TURN / max(cost, 1e-6))))

    def _note(self, cost: float, kind: Hashable) -> None:
        """Note the processor time of a job."""
        if len(self._costs) > _KEPT:
            self._costs.clear()
        before = self._costs.get(kind, cost)
        self._costs[kind] = before + _WEIGHT * (cost - before)
        self._cost += _WEIGHT * (cost - self._cost)

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
            logger.debug("%d searches are run one by one", len(jobs), exc_info=True)
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
