"""Progress of long work: a protocol that the library calls, and bars that implement it.

The unit is windows unless the description says otherwise; in a training, windows of all epochs.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Protocol

PLAIN_INTERVAL = 10.0
"""Seconds between two lines of progress without a terminal."""
_NOTEBOOK_INTERVAL = 0.2  # seconds between two updates of a bar in a notebook


class Advance(Protocol):
    """Reports completed work."""

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

    It is a bar on a terminal and in a notebook, and else a line on stderr about every ten seconds
    and at the end.
    """

    def show(description: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
        if (display := _notebook()) is not None:
            return _in_notebook(display, description, total, passing=passing)
        return (_bar if sys.stderr.isatty() else _lines)(description, total, passing=passing)

    return show


def _notebook() -> Any | None:
    """Return `IPython.display` inside a notebook, else None."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if getattr(shell, "kernel", None) is None:  # IPython in a terminal has a shell as well
        return None
    return import_module("IPython.display")


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

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_count(task.completed, total))

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Count(),
        Rate(),
        Remaining(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Bars(*columns, console=Console(file=sys.stderr), transient=passing) as bars:
        task = bars.add_task(description, total=total, note="")

        def advance(count: float = 1, *, note: str = "") -> None:
            bars.update(task, advance=count, note=note)

        yield advance


@contextmanager
def _in_notebook(
    display: Any, description: str, total: int | None, *, passing: bool
) -> Iterator[Advance]:
    """Show a bar drawn by the browser."""
    place = display.display(display.HTML(""), display_id=True)

    def draw(text: str, done: float) -> None:
        share = "" if total is None else f" value='{done:g}' max='{max(total, 1)}'"
        place.update(display.HTML(f"<progress{share}></progress> {html.escape(text)}"))

    yield from _report(description, total, draw, every=_NOTEBOOK_INTERVAL, passing=False)
    if passing:
        place.update(display.HTML(""))


@contextmanager
def _lines(description: str, total: int | None, *, passing: bool) -> Iterator[Advance]:
    def write(text: str, done: float) -> None:  # noqa: ARG001
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    yield from _report(description, total, write, every=PLAIN_INTERVAL, passing=passing)


def _report(
    description: str,
    total: int | None,
    write: Callable[[str, float], None],
    *,
    every: float,
    passing: bool,
) -> Iterator[Advance]:
    """Call `write` with a line of text every so many seconds and at the end."""
    started = written = time.monotonic()
    done, latest = 0.0, ""

    def update() -> None:
        rate = done / max(time.monotonic() - started, 1e-9)
        parts = [f"{description}: {_count(done, total)}", _rate(rate)]
        if total is not None and 0 < done < total:
            parts.append(f"{_clock((total - done) / rate)} remaining")
        write(", ".join([*parts, latest] if latest else parts), done)

    def advance(count: float = 1, *, note: str = "") -> None:
        nonlocal done, latest, written
        done, latest = done + count, note
        if time.monotonic() - written >= every:
            written = time.monotonic()
            update()

    yield advance
    if not passing or written > started:
        update()


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


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
