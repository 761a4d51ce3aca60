"""What all commands print with: results to stdout, talk and progress to stderr.

Where there is no terminal, lines are plain.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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
    """Write a line to stderr; under `--quiet` only what is urgent."""
    if volume() is Volume.QUIET and not urgent:
        return
    sys.stderr.write(printable(message) + "\n")
    sys.stderr.flush()


def wrote(target: Path, dataset: PreparedDataset) -> None:
    """Say that a data set was written."""
    talk(f"wrote {target}: {dataset.name}, fingerprint {dataset.fingerprint[:12]}")


def print_json(value: Any) -> None:
    """Write a value as JSON to stdout; NaN and infinity are refused with a ValueError.

    Letters stand as they are where the console is of UTF-8, else as JSON's escapes.
    """
    letters = (sys.stdout.encoding or "").lower().replace("_", "-") in ("utf-8", "utf8")
    text = json.dumps(value, indent=1, ensure_ascii=not letters, allow_nan=False)
    sys.stdout.write(text + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout, never cut.

    On a terminal it is framed; elsewhere its columns are aligned, two spaces apart.

    Args:
        title: Line above it; empty for none.
        columns: Heads of the columns.
        rows: Cells, each row as long as `columns`; numbers stand to the right, None is an empty
            cell.

    Raises:
        ValueError: A row is longer or shorter than `columns`.
    """
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"table '{title}': a row does not have {len(columns)} cells")
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows)
        and all(isinstance(row[place], int | float) or row[place] is None for row in rows)
        for place in range(len(columns))
    ]
    if sys.stdout.isatty():
        _framed(title, columns, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [printable(title)] if title else []
    for row in (columns, *cells):
        padded = [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    sys.stdout.write("\n".join(lines) + "\n")


def _framed(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(title=Text(printable(title)) if title else None, title_justify="left")
    for column, side in zip(columns, right, strict=True):
        framed.add_column(Text(column), justify="right" if side else "left")
    for row in cells:
        framed.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout).print(framed)


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


@contextmanager
def progress(description: str, *, total: int | None = None) -> Iterator[Advance]:
    """Show on stderr how far a work of `total` pieces has come, its rate and the time that remains.

    This is the `cefito.progress.Progress` of the command line. On a terminal it is a bar; elsewhere
    a line about every ten seconds and one at the end.

    Args:
        description: What is being done.
        total: Number of pieces, None where it is not known.

    Yields:
        A function to call when pieces are done.
    """
    with _shown(description, total, passing=False) as advance:
        yield advance


@contextmanager
def passing_progress(description: str, *, total: int | None = None) -> Iterator[Advance]:
    """Like `progress`, but nothing is left of it.

    The bar vanishes, and work of a few seconds writes no line at all.
    """
    with _shown(description, total, passing=True) as advance:
        yield advance


def _shown(
    description: str, total: int | None, *, passing: bool
) -> AbstractContextManager[Advance]:
    if volume() is Volume.QUIET:
        return silent(printable(description), total=total)
    return bar(passing=passing)(printable(description), total=total)


@contextmanager
def log_warnings() -> Iterator[None]:
    """Show the library's warnings as lines on stderr, under `--verbose` what it does as well."""

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
    """Let the first Ctrl-C ask the work inside to stop, and a second one interrupt it as usual.

    Outside the main thread, and where interrupts are ignored, all stays as it is.

    Args:
        message: Said on stderr at the first one.

    Yields:
        A function that says whether the work was asked to stop.
    """
    asked = threading.Event()
    old = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:  # noqa: ARG001
        asked.set()
        signal.signal(signal.SIGINT, old)
        # not by sys.stderr, which the interrupt may have found half-way through a write
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
