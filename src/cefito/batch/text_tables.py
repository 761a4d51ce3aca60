"""Queries in lines of text, JSONL or CSV, however many: an index of where pieces begin is kept."""

from __future__ import annotations

import csv
import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

from cefito.arrays import check_regular
from cefito.batch.rows import COLUMNS, EXPECTED, PIECE, Row
from cefito.errors import DataError

__all__ = ["TextTable", "check_columns", "open_csv", "open_jsonl"]

_LONGEST = 1 << 24  # bytes of a line
_TOO_LONG = "\0too long"
_Record: TypeAlias = tuple[int, Any, str]  # number of its line, what it says, why it says nothing


class _Lines:
    """The lines of an open file, none too long, and where they end.

    Attributes:
        offset: Where the next line begins.
        number: Number of the line that was read last, counted from 1.
        digest: Of what was read.
    """

    def __init__(self, file: IO[bytes], offset: int = 0, number: int = 0) -> None:
        self.file, self.offset, self.number = file, offset, number
        self.digest = hashlib.sha256()
        file.seek(offset)

    def __iter__(self) -> Iterator[bytes | None]:
        """Each line with its end; None for one that is too long."""
        while part := self._read():
            self.number += 1
            line: bytes | None = part
            if self.number == 1 and part.startswith(b"\xef\xbb\xbf"):
                line = part[3:]
            while len(part) > _LONGEST and not part.endswith(b"\n"):
                line, part = None, self._read()
            yield line

    def _read(self) -> bytes:
        part = self.file.readline(_LONGEST + 1)
        self.offset += len(part)
        self.digest.update(part)
        return part


@dataclass(frozen=True)
class TextTable:
    """An opened table of text; a `Source`.

    Attributes:
        path: The file.
        head: Names of its columns; empty where each line names what it holds.
        starts: Where each piece begins, and the number of the line before it, in pairs.
        count: Number of queries.
        digest: SHA-256 of the file.
        state: Size and time of the file when it was read.
    """

    path: Path
    head: tuple[str, ...]
    starts: array[int]
    count: int
    digest: str
    state: tuple[int, int]

    def __len__(self) -> int:
        return self.count

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.path.parent

    @property
    def identity(self) -> dict[str, str | int]:
        """The content of the file."""
        return {"kind": "table", "sha256": self.digest, "queries": self.count}

    def rows(self, first: int, count: int) -> Iterator[Row]:
        """Some rows in their order; see `Source.rows`."""
        if first >= self.count:
            return
        place = 2 * (first // PIECE)
        with _opened(self.path) as file:
            if _state(self.path) != self.state:
                raise DataError(f"{self.path}: has changed while it was read. Repeat the command.")
            lines = _Lines(file, *self.starts[place : place + 2])
            for number, value, problem in islice(_records(lines, self.head), count):
                where = f"{self.path}, line {number}"
                yield Row(number, where, value, name=str(number), problem=problem)


def open_jsonl(path: Path) -> TextTable:
    """Index a file of JSON, one object a line.

    Raises:
        DataError: It cannot be read.
    """
    with _opened(path) as file:
        return _indexed(path, _Lines(file), ())


def open_csv(path: Path) -> TextTable:
    """Index a file of CSV with a head.

    Raises:
        DataError: It cannot be read, or a column is none that queries have.
    """
    with _opened(path) as file:
        lines = _Lines(file)
        try:
            first = next(csv.reader(_text(lines), strict=True), [])
            head = tuple(name.strip() for name in first)
        except csv.Error as problem:
            raise DataError(f"{path}: its head is not readable as CSV ({problem}).") from problem
        check_columns(path, head)
        return _indexed(path, lines, head)


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Refuse columns that queries do not have.

    Raises:
        DataError: Such a column, or one twice.
    """
    for name in names:
        if name not in COLUMNS:
            raise DataError(
                f"{path}: column {name[:60]!r}: no such column. There are {', '.join(COLUMNS)}; "
                "leave out what is something else."
            )
        if names.count(name) > 1:
            raise DataError(f"{path}: column '{name}' occurs twice. Leave one out.")


def _indexed(path: Path, lines: _Lines, head: tuple[str, ...]) -> TextTable:
    """Read all lines once, and note where pieces begin."""
    state = _state(path)
    starts, count = array("q", (lines.offset, lines.number)), 0
    for _ in _records(lines, head, lambda text: text):  # nothing is understood yet
        count += 1
        if count % PIECE == 0:
            starts.extend((lines.offset, lines.number))
    return TextTable(path, head, starts, count, lines.digest.hexdigest(), state)


def _records(
    lines: _Lines, head: tuple[str, ...], understood: Callable[[str], Any] = json.loads
) -> Iterator[_Record]:
    """What each line that is not empty says."""
    if head:
        yield from _cells(lines, head)
        return
    for line in lines:
        if line is None:
            yield lines.number, None, f"is longer than {_LONGEST >> 20} MiB"
        elif line.strip():
            try:
                yield lines.number, understood(line.decode("utf-8")), ""
            except UnicodeDecodeError:
                yield lines.number, None, "is not UTF-8. Save the list as UTF-8."
            except (ValueError, RecursionError) as problem:
                yield lines.number, None, f"not valid JSON ({problem}). {EXPECTED}"


def _cells(lines: _Lines, head: tuple[str, ...]) -> Iterator[_Record]:
    """The cells of each row that are not empty, by the names of their columns."""
    reader = csv.reader(_text(lines), strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            yield lines.number, None, f"not readable as CSV ({problem}). Mend it."
            continue
        if not cells:
            continue
        problem_of = ""
        if cells == [_TOO_LONG]:
            problem_of = f"is longer than {_LONGEST >> 20} MiB"
        elif len(cells) != len(head):
            problem_of = "has not as many cells as the head. Mend the line."
        elif any("\ud800" <= letter <= "\udfff" for cell in cells for letter in cell):
            problem_of = "is not UTF-8. Save the list as UTF-8."
        value = {name: cell for name, cell in zip(head, cells, strict=False) if cell.strip()}
        yield lines.number, None if problem_of else value, problem_of


def _text(lines: _Lines) -> Iterator[str]:
    for line in lines:
        yield _TOO_LONG if line is None else line.decode("utf-8", "surrogateescape")


def _opened(path: Path) -> IO[bytes]:
    """The file, for reading.

    Raises:
        DataError: It is not there or cannot be read.
    """
    check_regular(path, EXPECTED, DataError)
    try:
        return path.open("rb")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise DataError(f"{path}: cannot be read ({reason}). {EXPECTED}") from problem


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
