"""Tables of findings for spreadsheets: a workbook of several, or the findings as CSV."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError, explained, install_command
from cefito.files import check_target, write_bytes, write_text
from cefito.inference.verification import VerifiedVideo
from cefito.markup import csv_text
from cefito.report.page import UNFIT
from cefito.report.verification import durations
from cefito.verification.verifier import Verifier

Cell = str | float | int | None
_SHARES = "probability", "mistake", "longer by"  # columns; other numbers are seconds or counts
_BOM = "\ufeff"
_WIDEST = 60  # letters


def save_table(
    videos: Sequence[VerifiedVideo],
    path: Path,
    verifier: Verifier,
    *,
    bom: bool = False,
    left_out: Sequence[str] = (),
) -> None:
    """Write findings as a table: .csv, or .xlsx with sheets of videos, findings, steps, durations.

    Args:
        videos: Videos that were verified.
        path: The file; an existing one is replaced.
        verifier: Knows the usual lengths of steps.
        bom: Begin a CSV with a byte order mark, by which Excel knows that it is UTF-8.
        left_out: What was not verified, and why, as "video: reason"; each is a row.

    Raises:
        ConfigError: A file that cannot be written, or openpyxl is not installed.
    """
    check_target(path, (".csv", ".xlsx"), "out")
    if path.suffix == ".csv":
        write_text(path, _BOM * bom + csv_text(_findings(videos, left_out)))
        return
    book = new_workbook(path)
    sheets = {
        "videos": _videos(videos, left_out),
        "findings": _findings(videos, left_out),
        "steps": _steps(videos),
        "durations": _durations(videos, verifier),
    }
    for name, rows in sheets.items():
        _fill(book.create_sheet(name), list(rows))
    data = io.BytesIO()
    book.save(data)
    write_bytes(path, data.getvalue())


def new_workbook(path: Path) -> Any:
    """Return an openpyxl workbook without a sheet, to be written to a path (ConfigError)."""
    remedy = f"Run {install_command('excel')}, or write a .csv."
    with explained(path, "needs openpyxl", remedy, ImportError, error=ConfigError):
        book = import_module("openpyxl").Workbook()
    book.remove(book.active)
    return book


def _fill(sheet: Any, rows: Sequence[Sequence[Cell]]) -> None:
    """Fill a sheet; text is never taken for a formula, and numbers are rounded."""
    digits = [3 if head in _SHARES else 2 for head in rows[0]]
    for line, row in enumerate(rows, 1):
        for place, value in enumerate(row, 1):
            cell = sheet.cell(line, place)
            if isinstance(value, str):
                cell.value, cell.data_type = UNFIT.sub("\ufffd", value), "s"
            else:
                cell.value = round(value, digits[place - 1]) if isinstance(value, float) else value
    sheet.freeze_panes = "A2"
    for column in sheet.columns:
        widest = max(len(str(cell.value)) for cell in column if cell.value is not None)
        sheet.column_dimensions[column[0].column_letter].width = min(widest, _WIDEST) + 2


def _not_verified(left_out: Iterable[str]) -> Iterable[tuple[str, str]]:
    for video, _, reason in (problem.partition(": ") for problem in left_out):
        yield video, f"not verified: {reason}"


def _videos(videos: Iterable[VerifiedVideo], left_out: Sequence[str]) -> Iterable[Sequence[Cell]]:
    yield "video", "worker", "task", "steps", "findings", "found", "to do", "not seen", "left open"
    for video in videos:
        counts = len(video.steps), len(video.deviations)
        mistakes = "; ".join(f"{mistake.name}: {mistake.words}" for mistake in video.deviations)
        left = "; ".join(video.passed_over()), "; ".join(video.left_open)
        texts = mistakes, ", ".join(video.repair), *left
        yield video.video, video.group, video.task, *counts, *texts
    for name, reason in _not_verified(left_out):
        yield name, "", "", None, None, "", "", "", reason


def _findings(videos: Iterable[VerifiedVideo], left_out: Sequence[str]) -> Iterable[Sequence[Cell]]:
    yield "video", "worker", "task", "step", "start", "end", "finding", "probability", "evidence"
    for name, reason in _not_verified(left_out):
        yield name, "", "", "", None, None, reason, None, ""
    for video in videos:
        for one in video.deviations:
            times = one.start, one.end, one.words, one.probability, one.evidence
            yield video.video, video.group, video.task, one.name, *times


def _steps(videos: Iterable[VerifiedVideo]) -> Iterable[Sequence[Cell]]:
    yield "video", "worker", "task", "number", "step", "start", "end", "seconds", "mistake"
    for video in videos:
        for number, step in enumerate(video.steps, 1):
            times = step.start, step.end, step.end - step.start, step.mistake
            yield video.video, video.group, video.task, number, step.name, *times


def _durations(videos: Iterable[VerifiedVideo], verifier: Verifier) -> Iterable[Sequence[Cell]]:
    yield "task", "step", "worker", "mean seconds", "usual seconds", "longer by", "steps"
    for row in durations(videos, verifier):
        for worker, (mean, count) in row.means.items():
            yield row.task, row.step, worker, mean, row.usual, row.change(worker), count
