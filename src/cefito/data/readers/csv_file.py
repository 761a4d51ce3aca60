"""CSV files with commas, semicolons or tabs, in UTF-8."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cefito.data.annotations import nfc
from cefito.errors import DataError, explained
from cefito.files import read_bytes

__all__ = ["read_csv"]


def read_csv(path: Path, remedy: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place (file and line) and the cells by column of each line of a CSV file.

    Column names are stripped and in lower case. Empty lines and Excel's "sep=;" are skipped.
    """
    text = nfc(_text(path, remedy))
    separator = re.match(r"sep=([,;\t|])\r?\n", text)
    body = text[separator.end() :] if separator else text
    delimiter = separator[1] if separator else max(",;\t", key=body.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(body, newline=""), delimiter=delimiter, strict=True)
    with explained(path, "cannot be read as a table", remedy, csv.Error):
        columns = [column.strip().casefold() for column in reader.fieldnames or ()]
        check_columns(path, columns)
        reader.fieldnames = columns
        for row in reader:
            place = f"{path}, line {reader.line_num + bool(separator)}"
            extra = row.pop(None, [])  # cells without a column
            if not any(cell and cell.strip() for cell in (*row.values(), *extra)):
                continue
            if any(cell.strip() for cell in extra):
                raise DataError(f"{place}: has too many cells. Quote names with '{delimiter}'.")
            yield place, row


def check_columns(path: Path, columns: list[str]) -> None:
    """Refuse a table with two columns of one name."""
    repeated = [column for column in columns if column and columns.count(column) > 1]
    if repeated:
        raise DataError(f"{path}: has two columns '{repeated[0]}'. Rename or remove one of them.")


def _text(path: Path, remedy: str) -> str:
    data = read_bytes(path, remedy)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        fault = f"line {line}: is not UTF-8. Save the table as UTF-8"
        raise DataError(f"{path}, {fault}.") from problem
