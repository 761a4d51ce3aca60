"""CSV files as people have them: with commas, semicolons or tabs, from any program, in UTF-8."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cefito.arrays import check_regular
from cefito.data.text import nfc
from cefito.errors import DataError

__all__ = ["read_csv"]


def read_csv(path: Path, remedy: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of a CSV file: the place of each, and its cells by column.

    Names of columns are trimmed and in lower case. Lines without any content are passed over, and
    so is a first line "sep=;", as Excel writes it.

    Args:
        path: The file.
        remedy: What it should be, the last sentence of the messages.

    Raises:
        DataError: No such file, not UTF-8 text (with the line), not CSV, two columns of one name,
            or more cells in a line than there are columns.
    """
    check_regular(path, remedy)
    text = nfc(_text(path, remedy))
    told = re.match(r"sep=([,;\t|])\r?\n", text)
    body = text[told.end() :] if told else text
    delimiter = told[1] if told else max(",;\t", key=body.partition("\n")[0].count)
    skipped = 1 if told else 0
    reader = csv.DictReader(io.StringIO(body, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip().casefold() for column in reader.fieldnames or ()]
        twice = [column for column in columns if column and columns.count(column) > 1]
        if twice:
            raise DataError(f"{path}: has two columns '{twice[0]}'. Rename or remove one of them.")
        reader.fieldnames = columns
        for row in reader:
            place = f"{path}, line {reader.line_num + skipped}"
            extra = row.pop(None, [])  # cells without a column
            if not any(cell and cell.strip() for cell in (*row.values(), *extra)):
                continue
            if any(cell.strip() for cell in extra):
                raise DataError(
                    f"{place}: has more cells than the first line. Put names that hold "
                    f"'{delimiter}' between quotes."
                )
            yield place, row
    except csv.Error as problem:
        raise DataError(f"{path}: cannot be read as a table ({problem}). {remedy}") from problem


def _text(path: Path, remedy: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. {remedy}") from problem
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be read as a table ({problem.strerror or problem}). {remedy}"
        ) from problem
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise DataError(_not_utf8(path, data, problem.start)) from problem


def _not_utf8(path: Path, data: bytes, place: int) -> str:
    """What to say of a file that is not UTF-8, with what the line would be in Windows' letters."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{path}: cannot be read as a table: it is UTF-16, not UTF-8. Save it as UTF-8."
    number = data.count(b"\n", 0, place) + 1
    line = data[data.rfind(b"\n", 0, place) + 1 :].partition(b"\n")[0]
    shown = line.decode("cp1252", errors="replace").strip()
    shown = "".join(letter for letter in shown if letter.isprintable())
    return (
        f"{path}, line {number}: cannot be read as a table: it is not UTF-8 (in Windows-1252 the "
        f"line is {shown[:80]!r}). Save the table as UTF-8."
    )
