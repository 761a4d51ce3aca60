"""Printing of all commands: results to stdout, messages and progress to stderr."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cefito.cli.console_errors import printable
from cefito.cli.verbosity import Volume, volume
from cefito.progress import Advance, bar, silent

if TYPE_CHECKING:
    from cefito.data.prepared import PreparedDataset

__all__ = [
    "log_warnings",
    "passing_progress",
    "print_json",
    "progress",
    "stoppable",
    "table",
    "talk",
    "wrote",
]


def talk(message: str, *, urgent: bool = False) -> None:
    """Write a message to stderr; under `--quiet` only if it is urgent."""
    if volume() is Volume.QUIET and not urgent:
        return
    sys.stderr.write(printable(message) + "\n")
    sys.stderr.flush()


def wrote(target: Path, dataset: PreparedDataset) -> None:
    """Say that a data set was written."""
    talk(f"wrote {target}: {dataset.name}, fingerprint {dataset.fingerprint[:12]}")


def print_json(value: Any) -> None:
    """Write a value without NaN as JSON to stdout, in ASCII unless the console is of UTF-8."""
    letters = (sys.stdout.encoding or "").lower().replace("_", "-") in ("utf-8", "utf8")
    text = json.dumps(value, indent=1, ensure_ascii=not letters, allow_nan=False)
    sys.stdout.write(text + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout, never cut: framed on a terminal, else aligned plain columns.

    Columns of numbers are aligned to the right; None is an empty cell.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows) and all(value is None or isinstance(value, int | float) for value in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(columns))
    ]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        framed = Table(title=Text(printable(title)) if title else None, title_justify="left")
        for column, side in zip(columns, right, strict=True):
            framed.add_column(Text(column), justify="right" if side else "left")
        for row in cells:
            framed.add_row(*(Text(cell) for cell in row))
        Console(file=sys.stdout).print(framed)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [printable(title)] if title else []
    for line in (columns, *cells):
        padded = [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return printable(str(value)).replace("\n", "\\n")


def progress(
    description: str, *, total: int | None = None, passing: bool = False
) -> AbstractContextManager[Advance]:
    """Show the progress of a work on stderr; a `cefito.progress.Progress`."""
    shown = silent if volume() is Volume.QUIET else bar(passing=passing)
    return shown(printable(description), total=total)


passing_progress = partial(progress, passing=True)
"""Progress without a trace: the bar vanishes, and short work writes no line."""


@contextmanager
def log_warnings() -> Iterator[None]:
    """Show the library's warnings on stderr, and its information under `--verbose`."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            urgent = record.levelno >= logging.WARNING
            talk(f"{record.levelname.lower()}: {record.getMessage()}", urgent=urgent)

    level = logging.INFO if volume() is Volume.VERBOSE else logging.WARNING
    logger, handler = logging.getLogger("cefito"), Lines(level)
    old = logger.level
    logger.addHandler(handler)
    if level < logger.getEffectiveLevel():
        logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(old)


@contextmanager
def stoppable(message: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first Ctrl-C, which writes the message.

    A second one interrupts. Nothing changes outside the main thread, or if interrupts are ignored.
    """
    asked = threading.Event()
    old = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:  # noqa: ARG001
        asked.set()
        signal.signal(signal.SIGINT, old)
        # not to sys.stderr, which the interrupt may have found half-way through a write
        with suppress(OSError):
            os.write(2, f"\n{message}\n".encode())

    if threading.current_thread() is not threading.main_thread() or old in (signal.SIG_IGN, None):
        yield asked.is_set
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, old)
