"""The protocol of an executor, and what can become of a job."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

__all__ = [
    "Done",
    "Executor",
    "Failed",
    "Killed",
    "Outcome",
    "attempt",
    "ignore",
    "queues",
]

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Done(Generic[Value]):
    """A job that gave a value.

    Attributes:
        value: What its function returned.
    """

    value: Value


@dataclass(frozen=True)
class Failed:
    """A job that ended with an error.

    Attributes:
        error: Type and message of the error, in one line.
        traceback: Where it was raised; empty where its process ended of itself.
    """

    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Killed:
    """A job whose process was killed while it was worked on.

    Attributes:
        signal: Number of the signal.
    """

    signal: int


Outcome: TypeAlias = Done[Value] | Failed | Killed


def ignore(count: float = 1) -> None:
    """Tell nobody that jobs have ended."""


class Executor(Protocol):
    """Maps a function over arguments; each argument is a job.

    Attributes:
        in_process: Whether jobs run in this process, so that they can show their own progress.
    """

    in_process: ClassVar[bool]

    def map(
        self,
        function: Callable[[Argument], Value],
        arguments: Sequence[Argument],
        *,
        groups: Sequence[Hashable] | None = None,
        advance: Callable[[float], None] = ignore,
    ) -> list[Outcome[Value]]:
        """Call a function with every argument.

        A job that fails or is killed leaves the others as they are. An interrupt of this process
        ends all workers and is passed on.

        Args:
            function: What is called. Where jobs run in other processes it is pickled once, and each
                worker calls its own copy for all its jobs: what the copy keeps (an opened file, a
                loaded model) is there for the worker's next job.
            arguments: One for each job; picklable, as are the values that come back.
            groups: The group of each job; jobs of one group run one after the other, in their
                order, if possible on one worker. By default each job is a group of its own.
            advance: Called with 1 in this process whenever a job has ended, however it ended.

        Returns:
            What became of each job, in the order of the arguments.
        """


def attempt(function: Callable[[Argument], Value], argument: Argument) -> Done[Value] | Failed:
    """Call a function; its errors become outcomes, interrupts and exits do not."""
    try:
        return Done(function(argument))
    except Exception as problem:
        return failure(problem)


def failure(problem: Exception) -> Failed:
    """An error that is being handled, as the outcome of a job."""
    message = " ".join(str(problem).split())
    name = type(problem).__name__
    return Failed(f"{name}: {message}" if message else name, traceback.format_exc())


def queues(count: int, groups: Sequence[Hashable] | None) -> deque[deque[int]]:
    """The numbers of so many jobs, those of a group in a queue of their own.

    Raises:
        ValueError: Not as many groups as jobs.
    """
    found: dict[Hashable, deque[int]] = {}
    names = range(count) if groups is None else groups
    for job, name in zip(range(count), names, strict=True):
        found.setdefault(name, deque()).append(job)
    return deque(found.values())
