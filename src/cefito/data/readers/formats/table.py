"""Tables of steps, CSV or Parquet: one line a step, with names of columns that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from cefito.arrays import check_regular
from cefito.data.annotations import SPLITS, nfc
from cefito.data.readers.csv_file import check_columns, csv_rows
from cefito.data.readers.formats.document import Choices, Document, Format, StepRow
from cefito.errors import DataError, explained
from cefito.times import TIME_FORMS, parse_seconds

__all__ = ["COLUMNS", "CSV", "PARQUET", "SHAPE"]

COLUMNS = ("video", "task", "step", "start", "end")
SHAPE = (
    "Expected the columns video, task, step, start, end (seconds) and, optionally, split (train, "
    "val or test)."
)
_ENDINGS = (".parquet", ".pq")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the steps of a table, whose times have the same decimal sign."""
    first: dict[str, str] = {}  # place of the first time with each decimal sign
    for place, row in _rows(document.path, _lines(document), document.choices):
        times = f"the step runs from {row['start']!r} to {row['end']!r}"
        with explained(place, times, TIME_FORMS):
            start, end = parse_seconds(row["start"]), parse_seconds(row["end"])
        for text in (row["start"], row["end"]):
            sign = next((sign for sign in ".," if sign in text), "")
            if sign:
                first.setdefault(sign, place)
        if len(first) == 2:
            before = next(iter(first.values())).rpartition(", ")[2]
            raise DataError(f"{place}: has another decimal sign than {before}. Write times alike.")
        yield StepRow(row["video"], row["step"], start, end, place, row["task"], row["split"])


def _is_parquet(document: Document) -> bool:
    return document.path.suffix.lower() in _ENDINGS or document.data.startswith(b"PAR1")


def _lines(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    if _is_parquet(document):
        return _parquet(document.path)
    return csv_rows(document.text, document.path, SHAPE)


def _rows(
    path: Path, lines: Iterator[tuple[str, dict[str, Any]]], choices: Choices
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line with its place and stripped cells; `split` is empty without such a column."""
    columns: Mapping[str, str] = choices.columns
    unknown = [column for column in columns if column not in (*COLUMNS, "split")]
    if unknown:
        raise DataError(f"column '{unknown[0]}' is not needed. {SHAPE}", setting="column")
    optional = {"split", *(["task"] if choices.task or choices.video_table else [])}
    for place, row in lines:
        wanted = {
            column: columns.get(column, column).strip().casefold()
            for column in (*COLUMNS, "split")
            if column in columns or column in row or column not in optional
        }
        if missing := [column for column, name in wanted.items() if name not in row]:
            absent = " and no column ".join(f"'{wanted[column]}'" for column in missing)
            found = f"{path}: has no column {absent}, only {', '.join(filter(None, row))}"
            names = "its name" if len(missing) == 1 else "their names"
            remedy = f"Give {names} ({', '.join(f'{column}=NAME' for column in missing)})"
            remedy += ", or one task for all videos" * ("task" in missing)
            setting = "column, task" if "task" in missing else "column"
            raise DataError(f"{found}. {remedy}.", setting=setting)
        cells = {
            column: "" if row[name] is None else " ".join(nfc(str(row[name])).split())
            for column, name in wanted.items()
        }
        empty = [column for column, cell in cells.items() if not cell]
        if empty:
            raise DataError(f"{place}: '{empty[0]}' is empty. Fill it in or remove the line.")
        split = cells.get("split", "").casefold()
        if split not in ("", *SPLITS):
            raise DataError(f"{place}: split is '{split}'; expected one of {', '.join(SPLITS)}.")
        yield place, {"task": "", **cells, "split": split}


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    install = "Run pip install cefito[table], or save the table as CSV."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_regular(path, SHAPE)
    kinds = OSError, pyarrow.ArrowException
    with explained(path, "cannot be read as Parquet", SHAPE, *kinds):
        table = parquet.read_table(path)
    names = [column.strip().casefold() for column in table.column_names]
    check_columns(path, names)
    for number, row in enumerate(table.rename_columns(names).to_pylist()):
        yield f"{path}, row {number} (counted from 0)", row


PARQUET = Format(name="table of steps", recognises=_is_parquet, read=_read)
CSV = Format(name="table of steps", recognises=lambda _: True, read=_read)
