"""Tables of steps, CSV or Parquet: one line a step, with names of columns that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from cefito.arrays import check_binary
from cefito.data.annotations import SPLITS, nfc
from cefito.data.readers.csv_file import Faults, check_columns, csv_rows, is_number
from cefito.data.readers.formats.document import Document, Format, StepRow
from cefito.errors import DataError, explained, install_command
from cefito.times import TIME_FORMS, parse_seconds

COLUMNS = ("video", "task", "step", "start", "end")
SHAPE = (
    "Expected the columns video, task, step, start, end (seconds) and, optionally, split (train, "
    "val or test) and error (no, yes, or kinds with ';' between)."
)
_FREE = ("split", "error")  # columns that may be absent
_NO, _YES = ("", "no", "n", "false", "0", "none", "-"), ("yes", "y", "true", "1")
_ENDINGS = (".parquet", ".pq")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the steps of a table, whose times have the same decimal sign."""
    faults, signs = Faults(), dict[str, str]()  # place of the first time with each decimal sign
    for place, row, in_frames in _rows(document, faults):
        try:
            start, end = parse_seconds(row["start"]), parse_seconds(row["end"])
        except ValueError as problem:
            times = f"the step runs from {row['start']!r} to {row['end']!r} ({problem})"
            faults.add("times", place, f"{times}. {TIME_FORMS}")
            continue
        for sign in ".,":
            if sign in row["start"] + row["end"]:
                signs.setdefault(sign, place)
                first, before = next(iter(signs.items()))
                if sign != first:
                    line = before.rpartition(", ")[2]
                    differs = f"has another decimal sign than {line}. Write times alike."
                    faults.add("sign", place, differs)
        if in_frames:
            rate = document.rate(row["video"])
            start, end = start / rate, end / rate
        facts = row["task"], row["split"]
        errors = _kinds(row.get("error", ""))
        yield StepRow(row["video"], row["step"], start, end, place, *facts, errors=errors)
    faults.check()


def _kinds(cell: str) -> tuple[str, ...]:
    """Return the kinds of errors in a cell."""
    word = cell.casefold()
    if word in _NO:
        return ()
    kinds = (kind.strip() for kind in cell.split(";"))
    return ("error",) if word in _YES else tuple(kind for kind in kinds if kind)


def _is_parquet(document: Document) -> bool:
    return document.path.suffix.lower() in _ENDINGS or document.data.startswith(b"PAR1")


def _lines(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    if _is_parquet(document):
        return _parquet(document.path)
    return csv_rows(document.text, document.path, SHAPE)


def _rows(document: Document, faults: Faults) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Each line with its place, its stripped cells, and whether its times count frames.

    `split` is empty without such a column.
    """
    path, choices = document.path, document.choices
    columns: Mapping[str, str] = choices.columns
    unknown = [column for column in columns if column not in (*COLUMNS, *_FREE)]
    if unknown:
        raise DataError(f"column '{unknown[0]}' is not needed. {SHAPE}", setting="column")
    optional = {*_FREE, *(["task"] if choices.task or choices.video_table else [])}
    for place, row in _lines(document):
        wanted = {
            column: columns.get(column, column).strip().casefold()
            for column in (*COLUMNS, *_FREE)
            if column in columns or column in row or column not in optional
        }
        if missing := [column for column, name in wanted.items() if name not in row]:
            absent = " and no column ".join(f"'{wanted[column]}'" for column in missing)
            found = f"{path}: has no column {absent}, only {', '.join(filter(None, row))}"
            names = "its name" if len(missing) == 1 else "their names"
            remedy = f"Give {names} ({', '.join(f'{column}=NAME' for column in missing)})"
            remedy += ", or one task for all videos" * ("task" in missing)
            remedy += ", or put a line with names first" * any(map(is_number, row))
            setting = "column, task" if "task" in missing else "column"
            raise DataError(f"{found}. {remedy}.", setting=setting)
        cells = {
            column: "" if row[name] is None else " ".join(nfc(str(row[name])).split())
            for column, name in wanted.items()
        }
        split = cells.get("split", "").casefold()
        if empty := [column for column, cell in cells.items() if not cell and column != "error"]:
            faults.add("empty", place, f"'{empty[0]}' is empty. Fill it in or remove the line.")
        elif split not in ("", *SPLITS):
            expected = ", ".join(SPLITS)
            faults.add("split", place, f"split is '{split}'; expected one of {expected}.")
        else:
            in_frames = ["frame" in wanted[column] for column in ("start", "end")]
            if any(in_frames) and not all(in_frames):
                both = f"'{wanted['start']}' and '{wanted['end']}'"
                problem = f"of the columns {both}, one counts frames. Give both in one unit"
                raise DataError(f"{path}: {problem}.", setting="column")
            yield place, {"task": "", **cells, "split": split}, all(in_frames)


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    install = f"Run {install_command('table')}, or save the table as CSV."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_binary(path, SHAPE)
    kinds = OSError, pyarrow.ArrowException
    with explained(path, "cannot be read as Parquet", SHAPE, *kinds):
        table = parquet.read_table(path)
    names = [column.strip().casefold() for column in table.column_names]
    check_columns(path, names)
    for number, row in enumerate(table.rename_columns(names).to_pylist()):
        yield f"{path}, row {number} (counted from 0)", row


PARQUET = Format(name="table of steps", recognises=_is_parquet, read=_read)
CSV = Format(name="table of steps", recognises=lambda _: True, read=_read)
