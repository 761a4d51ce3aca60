"""The protocol of an executor, the outcomes of jobs, and the executor in this process."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Done(Generic[Value]):
    """A job that returned a value."""

    value: Value


@dataclass(frozen=True)
class Failed:
    """A job that ended with an error."""

    error: str  # type and message in one line
    traceback: str = ""  # empty if its process ended


@dataclass(frozen=True)
class Killed:
    """A job whose process was killed, by the signal of this number."""

    signal: int


Outcome: TypeAlias = Done[Value] | Failed | Killed


def attempt(function: Callable[[Argument], Value], argument: Argument) -> Done[Value] | Failed:
    """Call a function; errors become outcomes, interrupts and exits do not."""
    try:
        return Done(function(argument))
    except Exception as problem:
        return failure(problem)


def failure(problem: Exception) -> Failed:
    """Return the outcome of a job for an error that is being handled."""
    message = " ".join(str(problem).split())
    name = type(problem).__name__
    return Failed(f"{name}: {message}" if message else name, traceback.format_exc())


class JobQueue(Generic[Argument, Value]):
    """Jobs of one call of `map` in other processes."""

    def __init__(
        self,
        arguments: Sequence[Argument],
        groups: Sequence[Hashable] | None,
        weights: Sequence[float] | None,
        advance: Callable[[float], None],
    ) -> None:
        self.arguments, self.weights, self.advance = arguments, weights, advance
        self.outcomes: dict[int, Outcome[Value]] = {}
        by_group: dict[Hashable, deque[int]] = {}
        names = range(len(arguments)) if groups is None else groups
        for job, name in zip(range(len(arguments)), names, strict=True):
            by_group.setdefault(name, deque()).append(job)
        self.waiting = deque(by_group.values())  # groups of jobs that no worker has

    def next(self, group: deque[int]) -> tuple[deque[int], bytes | None]:
        """Return the rest of a group or the next one, and the pickled argument of its first job.

        The argument is None if no job is left. Jobs whose argument cannot be pickled have failed.
        """
        while group or self.waiting:
            group = group or self.waiting.popleft()
            try:
                return group, bytes(ForkingPickler.dumps(self.arguments[group[0]]))
            except Exception as problem:
                self.note(group.popleft(), failure(problem))
        return group, None

    def note(self, job: int, outcome: Outcome[Any]) -> None:
        """Note the outcome of a job."""
        self.outcomes[job] = outcome
        self.advance(1 if self.weights is None else self.weights[job])


@dataclass(frozen=True)
class Executor(ABC):
    """Maps a function over arguments; each argument is a job."""

    in_process: ClassVar[bool] = False  # whether jobs run in this process and can show progress
    workers: int = 1

    def map(
        self,
        function: Callable[[Argument], Value],
        arguments: Sequence[Argument],
        *,
        groups: Sequence[Hashable] | None = None,
        weights: Sequence[float] | None = None,
        advance: Callable[[float], None] = lambda _: None,
    ) -> list[Outcome[Value]]:
        """Call a function with every argument, and return the outcomes in the same order.

        A job that fails or is killed does not affect the others. An interrupt of this process ends
        all workers and is raised.

        Args:
            function: Pickled once; each worker calls its own copy for all its jobs, so the copy may
                keep an opened file or a model.
            arguments: Picklable like the values. Each is taken once, when its job begins, in order
                unless there are groups.
            groups: Group of each job; jobs of one group run one after the other in their order, on
                one worker if possible. By default each job is a group of its own.
            weights: What each job counts in progress; 1 by default.
            advance: Called with that in this process when a job has ended in any way.
        """
        jobs: JobQueue[Argument, Value] = JobQueue(arguments, groups, weights, advance)
        if arguments:
            self._run(function, jobs, max(1, min(self.workers, len(jobs.waiting))))
        return [jobs.outcomes[job] for job in range(len(arguments))]

    @abstractmethod
    def _run(self, function: Callable[[Any], Any], jobs: JobQueue[Any, Any], workers: int) -> None:
        """Run all jobs in `workers` workers."""


class SerialExecutor(Executor):
    """Runs jobs in their order in this process; `workers` is ignored."""

    in_process: ClassVar[bool] = True

    def _run(self, function: Callable[[Any], Any], jobs: JobQueue[Any, Any], workers: int) -> None:  # noqa: ARG002
        for job, argument in enumerate(jobs.arguments):
            jobs.note(job, attempt(function, argument))
