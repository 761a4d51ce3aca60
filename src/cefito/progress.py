"""Progress of long work: a protocol that the library calls, and bars that implement it.

The unit is windows unless the description says otherwise; in a training, windows of all epochs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Protocol

PLAIN_INTERVAL = 10.0
"""Seconds between two lines of progress without a terminal."""


class EnoughSteps(Exception):  # noqa: N818 – no error
    """The caller wants no more steps of a network; those that are left are reported as one."""


class Advance(Protocol):
    """Reports completed work; it may raise `EnoughSteps`."""

    def __call__(self, count: float = 1, *, note: str = "") -> None:
        """Add `count` to the completed work; show `note` (say, a loss) beside the bar."""


class Progress(Protocol):
    """Shows the progress of some work of `total` units while the context is open."""

    def __call__(
        self, description: str, *, total: int | None = None
    ) -> AbstractContextManager[Advance]:
        """Begin some work; the context gives the function that reports its progress."""


@contextmanager
def silent(description: str, *, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG001
    """Show nothing."""

    def advance(count: float = 1, *, note: str = "") -> None:
        pass

    yield advance


def prefixed(progress: Progress, name: str) -> Progress:
    """Return progress whose descriptions begin with a name."""

    def named(description: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
        return progress(f"{name}: {description}", total=total)

    return named


def bar(*, passing: bool = False) -> Progress:
    """Return a progress display with rate and remaining time.

    It is a bar on a terminal, and else a line on stderr about every ten seconds and at the end.
    """

    def show(description: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
        return (_bar if sys.stderr.isatty() else _lines)(description, total, passing=passing)

    return show


@contextmanager
def _bar(description: str, total: int | None, *, passing: bool) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bars
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate(task.finished_speed or task.speed))

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        Rate(),
        Remaining(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Bars(*columns, console=Console(file=sys.stderr), transient=passing) as bars:
        task = bars.add_task(description, total=total, count=_count(0, total), note="")

        def advance(count: float = 1, *, note: str = "") -> None:
            bars.update(task, advance=count, note=note)
            bars.update(task, count=_count(bars.tasks[0].completed, total))

        yield advance


@contextmanager
def _lines(description: str, total: int | None, *, passing: bool) -> Iterator[Advance]:
    """Write a line from time to time, and at the end unless the work passes."""
    started = written = time.monotonic()
    done, latest = 0.0, ""

    def write() -> None:
        rate = done / max(time.monotonic() - started, 1e-9)
        parts = [f"{description}: {_count(done, total)}", _rate(rate)]
        if total is not None and 0 < done < total:
            parts.append(f"{timedelta(seconds=round((total - done) / rate))} remaining")
        sys.stderr.write(", ".join([*parts, latest] if latest else parts) + "\n")
        sys.stderr.flush()

    def advance(count: float = 1, *, note: str = "") -> None:
        nonlocal done, latest, written
        done, latest = done + count, note
        if time.monotonic() - written >= PLAIN_INTERVAL:
            written = time.monotonic()
            write()

    yield advance
    if not passing or written > started:
        write()


def _count(done: float, total: int | None) -> str:
    """Return units done and in total, or per cent of a few units done in part."""
    whole = round(done)
    if total is not None and total < 10 and abs(done - whole) > 1e-6:
        return f"{100 * done / total:.0f} %"
    return f"{whole}" if total is None else f"{whole}/{total}"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "– it/s"
    return f"{rate:.0f} it/s" if rate >= 10 else f"{rate:.2g} it/s"
