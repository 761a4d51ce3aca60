"""Text that people write and read: encodings, CSV, Markdown, times, counts and names in words."""

from __future__ import annotations

import codecs
import csv
import io
import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from cefito.errors import DataError, explained

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIME_FORMS = "Expected seconds (43.27 or 43,27) or hours, minutes and seconds (1:02:03.5)."
"""Remedy of messages about times."""
_SECONDS = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?[.,][0-9]+")
_CLOCK = re.compile(r"(?:([0-9]+):(?=[0-5]?[0-9]:))?([0-9]+):([0-5]?[0-9](?:[.,][0-9]*)?)")
_LONGEST = 40  # characters of a time
_LATEST = 1e7  # seconds of a video; more are Unix times
_IN_MARKDOWN = str.maketrans(
    {sign: "\\" + sign for sign in "\\|*_`~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " "}
)
_FORMULA = re.compile("'*[=+@\uff1d\uff0b\uff0d\uff20\t\r\n-]")
_FALLBACK = "Windows-1252"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BINARY = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_LETTERS = 40  # of a name in messages
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,:]*(?:e[-+]?[0-9]+)?")
_PLACES = 10  # that a message lists
_SEPARATOR = re.compile(r"sep=([,;\t|])\r?\n")
_BEFORE = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*")  # empty lines and comments


def percent(share: float | None) -> str:
    """Return a share in per cent; empty if it is unknown."""
    return "" if share is None else f"{100 * share:.1f} %"


def film_percent(share: float) -> str:
    """Return a probability by a film, in per cent: at the ends "over 98 %" and "under 2 %".

    It is a share of sequences drawn, of which 64 of 64 show no more, or is as little known.
    """
    if 1 / 64 <= share <= 63 / 64:
        return percent(share)
    return "over 98 %" if share > 0.5 else "under 2 %"


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a count and its noun, as in "1 task" or "1,200 tasks".

    Args:
        count: Number of things.
        noun: Their name if there is one.
        several: Their name otherwise; by default the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Iterable[str], most: int) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    all_names = list(names)
    more = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more


def shortened(name: str, most: int) -> str:
    """Cut a name to at most `most` letters; "…" marks what is left out."""
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    """Return a table of escaped cells in Markdown; `numbers` aligns further columns right.

    Args:
        heads: Names of the columns.
        rows: Cells of each row.
        numbers: Align all columns but the first right.
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def in_markdown(text: str) -> str:
    """Escape text for a line or a cell of Markdown: emphasis, code, formulas, tags and links."""
    return text.translate(_IN_MARKDOWN).replace("](", "]\\(")


def in_csv(text: str) -> str:
    """Put an apostrophe before text that spreadsheets take for a formula; `from_csv` removes it."""
    return f"'{text}" if _FORMULA.match(text) else text


def csv_text(rows: Iterable[Iterable[object]], separator: str = ",") -> str:
    """Return rows as CSV, in which spreadsheets take no text for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", delimiter=separator)
    writer.writerows([in_csv(c) if isinstance(c, str) else c for c in row] for row in rows)
    return text.getvalue()


def from_csv(cell: str) -> str:
    """Return the text of a cell without the apostrophe of `in_csv`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def plain(name: str) -> str:
    """Return a name in one line of characters that XML can hold."""
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())


class Faults:
    """Faults of lines: all of the first kind are named at once, with its first problem."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[list[str], str, str]] = {}

    def add(self, kind: str, place: str, problem: str, *, setting: str = "") -> None:
        """Remember the fault of a place; the problem ends with the remedy.

        Args:
            kind: Kind of the fault; those of one kind are counted.
            place: File and line.
            problem: What is wrong, and the remedy.
            setting: Setting at fault.
        """
        self._found.setdefault(kind, ([], problem, setting))[0].append(place)

    def check(self) -> None:
        """Raise a DataError if there is a fault."""
        for places, problem, setting in self._found.values():
            raise DataError(f"{listed_places(places)}: {problem}", setting=setting)


def listed_places(places: Sequence[str]) -> str:
    """Name places such as "a.csv, line 3", without what they have in common."""
    file = places[0].partition(", ")[0] + ", "
    return listed([places[0], *(place.removeprefix(file) for place in places[1:])], _PLACES)


def decoded(data: bytes, path: Path, encoding: str | None = None) -> tuple[str, str]:
    """Decode text in the given encoding, or else in Unicode or Windows-1252.

    Args:
        data: Content of the file.
        path: Its path, for messages.
        encoding: Name of the encoding.

    Returns:
        The text, and "Windows-1252", with all letters of Latin-1, if that was guessed, else "".
    """
    marked = [name for mark, name in _MARKS.items() if data.startswith(mark)]
    tried = [encoding] if encoding is not None else marked or ["utf-8", _FALLBACK]
    for name in tried:
        try:
            text = data.decode(name)
        except LookupError as problem:
            expected = "is not an encoding of text. Expected one such as cp1252"
            raise DataError(f"{name[:_LETTERS]!r} {expected}.", setting="encoding") from problem
        except ValueError:
            continue
        if not _BINARY.search(text):
            return text.removeprefix("\ufeff"), _FALLBACK if name == _FALLBACK else ""
    if data.startswith(b"PK\x03\x04"):
        raise DataError(f"{path}: is a ZIP archive or a workbook. Unpack it, or save it as CSV.")
    names = " or ".join(name.upper() if name == "utf-8" else name for name in tried)
    raise DataError(f"{path}: is not text in {names}. Give its encoding.", setting="encoding")


def encoding_note(path: Path, read_as: str) -> str:
    """Say that the encoding of a file was guessed, in a sentence."""
    return f"{path.name} is not UTF-8 and was read as {read_as}." if read_as else ""


def table_start(text: str) -> tuple[int, str]:
    """Return where the names of the columns begin, and the separator of cells.

    They follow Excel's "sep=;", empty lines and comments, or are the last comment, if the line
    after it has as many cells, and numbers in them.
    """
    separator = _SEPARATOR.match(text)
    before = _BEFORE.match(text, separator.end() if separator else 0)
    start = before.end() if before else 0
    line = text[start:].partition("\n")[0]
    delimiter = separator[1] if separator else max(",;\t|", key=line.count)
    above = text[:start].rstrip("\r\n").rpartition("\n")[2]
    columns = above.lstrip(" \t#")
    alike = above != columns and 0 < columns.count(delimiter) == line.count(delimiter)
    if alike and any(is_number(cell.strip('\r "')) for cell in line.split(delimiter)):
        start = text.rindex(columns, 0, start)
    return start, delimiter


def table_columns(text: str) -> list[str]:
    """Return the names of the columns that a text has if it is a table, in lower case."""
    start, delimiter = table_start(text)
    line = text[start:].partition("\n")[0]
    return [cell.strip('\r "').casefold() for cell in line.split(delimiter)]


def csv_rows(
    text: str, path: object, remedy: str, *, start: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the cells by column of each line of CSV; `path` is named in errors.

    Column names are stripped and in lower case; by default they are looked for, and `start` is
    where they begin. Empty lines are skipped.

    Args:
        text: Text of the file.
        path: Its path, for messages.
        remedy: What the user can do about a line that cannot be read.
        start: Where the names of columns begin.
    """
    begin, delimiter = table_start(text if start is None else text[start:])
    begin += start or 0
    above = text[:begin].count("\n")
    reader = csv.DictReader(io.StringIO(text[begin:], newline=""), delimiter=delimiter, strict=True)
    with explained(path, "cannot be read as a table", remedy, csv.Error):
        columns = [column.strip().casefold() for column in reader.fieldnames or ()]
        check_columns(path, columns)
        reader.fieldnames = columns
        for row in reader:
            place = f"{path}, line {reader.line_num + above}"
            extra = row.pop(None, [])  # cells without a column
            filled = [cell for cell in (*row.values(), *extra) if cell and cell.strip()]
            if not filled or (filled[0].startswith("#") and [*row.values()][1:2] == [None]):
                continue
            if any(cell.strip() for cell in extra):
                remedy = (
                    f"Quote names with '{delimiter}', or remove what is above the columns' names"
                )
                raise DataError(f"{place}: has too many cells. {remedy}.")
            yield place, {name: cell and from_csv(cell) for name, cell in row.items()}


def check_columns(path: object, columns: list[str]) -> None:
    """Refuse a table without names of columns, or with two columns of one name."""
    named = [column for column in columns if column]
    repeated = [column for column in named if named.count(column) > 1]
    numbers = [column for column in repeated[:1] or named if is_number(column)]
    if named and numbers and len(numbers) == len(repeated[:1] or named):
        fault = f"its first line holds no names of columns, only '{', '.join(named)[:_LETTERS]}'"
        raise DataError(f"{path}: {fault}. Put a line with the names before it.")
    if repeated:
        raise DataError(f"{path}: has two columns '{repeated[0]}'. Rename or remove one of them.")


def is_number(cell: str) -> bool:
    """Whether a cell holds a number or a time, and so is no name of a column."""
    return bool(_NUMBER.fullmatch(cell))


def parse_seconds(text: str) -> float:
    """Return the seconds of a time (ValueError): "43.27", "43,27", "0:30" or "1:02:03,5"."""
    written = text.strip()
    number = clock = None
    if len(written) <= _LONGEST:
        number, clock = _SECONDS.fullmatch(written), _CLOCK.fullmatch(written)
    if clock is not None:
        hours, minutes, seconds = clock.groups()
        return 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds.replace(",", "."))
    value = math.inf if number is None else float(written.replace(",", "."))
    if not math.isfinite(value):
        raise ValueError(f"{written[:_LONGEST]!r} is not a time")
    return value


def as_seconds(value: Any) -> float:
    """Return the seconds of a number, no truth value, or of a time as text (ValueError)."""
    if isinstance(value, str):
        return parse_seconds(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{str(value)[:_LONGEST]!r} is not a time")
    return float(value)


def step_times(start: Any, end: Any, *, place: str) -> tuple[float, float]:
    """Return start and end of a step in seconds, if a step can have them.

    Args:
        start: Start in seconds, a number or text.
        end: End in seconds, not before the start.
        place: Where the step was read; begins messages.

    Raises:
        DataError: Other values, or times that are not in order or are dates.
    """
    times = f"the step runs from {start!r} to {end!r}"
    expected = "Expected seconds with 0 ≤ start ≤ end. Correct or remove the step."
    with explained(place, times, expected, TypeError, ValueError, OverflowError):
        start, end = as_seconds(start), as_seconds(end)
        if not (0 <= start <= end and math.isfinite(end)):
            raise ValueError("the times are not in order")
        if end > _LATEST:
            raise ValueError("they seem to be dates; a video starts at 0")
    return start, end


Seconds = Annotated[float, BeforeValidator(as_seconds)]
"""Type of seconds in settings, requests and files, which may be written as times."""


def word_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return WordLlama's vectors of N texts, [N, 256]: means over their tokens, not normalised.

    Its package holds the numbers. Raises ImportError if it is not installed.
    """
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    import wordllama

    # its import made the root logger show all messages, those of cefito a second time
    root.handlers[:] = handlers
    root.setLevel(level)
    # downloads are looked for beside the package, which has both files
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    vectors: NDArray[np.float32] = model.embed(list(texts))
    return vectors
