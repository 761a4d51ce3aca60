"""Datavyu's text: the columns of its spreadsheet, each with cells of two times and codes.

A column is "step (MATRIX,true,)-code|NOMINAL,hand|NOMINAL", a cell of it
"00:00:00:000,00:00:04:500,(boil,left)", and each code of a column is a tier; commas,
backslashes and ends of lines in codes follow a backslash. http://www.datavyu.org
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format
from cefito.data.readers.formats.films import StepRow
from cefito.times import parse_seconds

_COLUMN = re.compile(r"(.+?) \((MATRIX|NOMINAL|TEXT|INTEGER|FLOAT),\w*,[^)\n]*\)(?:-(.*))?")
_TIME = r"([0-9]{1,3}:[0-9]{2}:[0-9]{2}):([0-9]{3})"
_CELL = re.compile(rf"{_TIME},{_TIME},(.*)", re.DOTALL)
_HEAD = re.compile(r"#[0-9]+\r?\n[^\n]+ \((?:MATRIX|NOMINAL|TEXT|INTEGER|FLOAT),")


def _split(text: str, sign: str = ",") -> list[str]:
    """Split a text at the signs that do not follow a backslash."""
    return re.findall(rf"(?:^|{sign})((?:[^{sign}\\]|\\.)*\\?)", text, re.DOTALL)


def _plain(code: str) -> str:
    return re.sub(r"\\(.)", r"\1", code, flags=re.DOTALL).strip()


def _read(document: Document) -> Iterator[StepRow]:
    """Yield a row for each code of a cell that has a value."""
    column, names, following = "", [""], 1
    for line in _split(document.text, "\n"):
        number, following = following, following + line.count("\n") + 1
        where = f"line {number}"
        if cell := _CELL.fullmatch(line):
            start, end = (
                parse_seconds(cell[place]) + int(cell[place + 1]) / 1000 for place in (1, 3)
            )
            found = re.fullmatch(r"\((.*)\)", cell[5], re.DOTALL)
            whole = found[1] if found else cell[5]
            codes = _split(whole) if len(names) > 1 else [whole]
            for name, code in zip(names, map(_plain, codes), strict=True):
                tier = f"{column}/{name}" if len(names) > 1 else column
                label = "" if code in (f"<{name}>", "<val>") else code
                yield StepRow(document.video, label, start, end, document.place(where), tier=tier)
        elif found := _COLUMN.fullmatch(line):
            column = found[1]
            names = [_plain(code.partition("|")[0]) for code in _split(found[3] or "")]
        elif line.strip() and number > 1:
            raise document.wrong("is no column and no cell. Export it again.", where)


FORMAT = Format(
    name="Datavyu",
    recognises=lambda document: bool(_HEAD.match(document.head)),
    read=_read,
    step="cell",
    tier="column",
)
