"""What all commands print with: results to stdout, talk and progress to stderr, plain lines where no terminal is."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cefito.progress import Advance

__all__ = ["log_warnings", "print_json", "progress", "table", "talk"]

PLAIN_INTERVAL = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def talk(message: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Write a value as JSON to stdout; NaN and infinity are refused with a ValueError."""
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout: framed on a terminal, elsewhere lines of aligned columns, two spaces apart, never cut.

    Args:
        title: Line above it; empty for none.
        columns: Heads of the columns.
        rows: Cells, each row as long as `columns`; numbers stand to the right, None is an empty cell.

    Raises:
        ValueError: A row is longer or shorter than `columns`.
    """
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"table '{title}': a row does not have {len(columns)} cells")
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[place], int | float) or row[place] is None for row in rows)
             for place in range(len(columns))]
    if sys.stdout.isatty():
        _framed(title, columns, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [title] if title else []
    for row in (columns, *cells):
        padded = [cell.rjust(width) if side else cell.ljust(width)
                  for cell, width, side in zip(row, widths, right, strict=True)]
        lines.append("  ".join(padded).rstrip())
    sys.stdout.write("\n".join(lines) + "\n")


def _framed(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(title=Text(title) if title else None, title_justify="left")
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
    return str(value)


@contextmanager
def progress(description: str, *, total: int | None = None) -> Iterator[Advance]:
    """Show on stderr how far a work of `total` pieces has come, its rate and the time that remains.

    This is the `cefito.progress.Progress` of the command line. On a terminal it is a bar; elsewhere a line about
    every ten seconds and one at the end.

    Args:
        description: What is being done.
        total: Number of pieces, None where it is not known.

    Yields:
        A function to call when pieces are done.
    """
    shown = _bar(description, total) if sys.stderr.isatty() else _lines(description, total)
    with shown as advance:
        yield advance


@contextmanager
def _bar(description: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate(task.finished_speed or task.speed))

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), Rate(), Remaining(),
               TextColumn("{task.fields[note]}", markup=False))
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(count: float = 1, *, note: str = "") -> None:
            bar.update(task, advance=count, note=note)

        yield advance


@contextmanager
def _lines(description: str, total: int | None) -> Iterator[Advance]:
    started = said = time.monotonic()
    done, latest = 0, ""

    def say() -> None:
        rate = done / max(time.monotonic() - started, 1e-9)
        parts = [f"{description}: {done}" + (f"/{total}" if total is not None else ""), _rate(rate)]
        if total is not None and 0 < done < total:
            parts.append(f"{_clock((total - done) / rate)} remaining")
        talk(", ".join([*parts, latest] if latest else parts))

    def advance(count: float = 1, *, note: str = "") -> None:
        nonlocal done, latest, said
        done, latest = done + count, note
        if time.monotonic() - said >= PLAIN_INTERVAL:
            said = time.monotonic()
            say()

    yield advance
    say()


def _rate(rate: float | None) -> str:
    if rate is None:
        return "– it/s"
    return f"{rate:.0f} it/s" if rate >= 10 else f"{rate:.2g} it/s"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


@contextmanager
def log_warnings() -> Iterator[None]:
    """Show the library's warnings as lines on stderr."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            talk(f"{record.levelname.lower()}: {record.getMessage()}")

    logger, handler = logging.getLogger("cefito"), Lines(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
