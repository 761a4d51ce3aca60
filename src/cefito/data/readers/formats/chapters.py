"""Chapters of a video as in its description on YouTube: lines with a time and a title."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format, StepRow
from cefito.times import parse_seconds

__all__ = ["FORMAT"]

_TIME = r"[(\[]?((?:\d{1,3}:)?\d{1,2}:\d{2})[)\]]?"
_FIRST = re.compile(rf"[^\w(\[]{{0,9}}{_TIME}(?=[ \t\-–—|:.])")
_LAST = re.compile(rf"[ \t]{_TIME}$")
_MARKS = " \t-–—|:."  # between time and title
_HEAD = 1 << 16  # letters in which chapters are recognised


def _lines(text: str) -> list[tuple[int, str, str]]:
    """Number, time and title of each line that is a chapter: first times, or else last ones."""
    lines = list(enumerate((line.strip() for line in text.split("\n")), 1))
    found = [
        (number, match[1], line[match.end() :])
        for number, line in lines
        if line.count("\t") < 2 and (match := _FIRST.match(line))
    ] or [
        (number, match[1], line[: match.start()])
        for number, line in lines
        if len(re.findall(r"[,;\t]", line)) < 2 and (match := _LAST.search(line))
    ]
    named = [(number, time, title.strip(_MARKS)) for number, time, title in found]
    return [entry for entry in named if entry[2] and not re.match(r"\d+:\d", entry[2])]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the chapters; each ends where the next begins, the last one with the video."""
    listed = [(parse_seconds(time), title, number) for number, time, title in _lines(document.text)]
    for (start, title, number), following in zip(listed, [*listed[1:], None], strict=True):
        place = document.place(f"line {number}")
        end = None if following is None else following[0]
        if following is not None and following[0] <= start:
            raise document.wrong(
                "begins no later than the chapter before. Correct its time.", f"line {following[2]}"
            )
        yield StepRow(document.video, title, start, end, place)


def _recognises(document: Document) -> bool:
    """Whether the first line, or at least two, are chapters; columns belong to tables."""
    if document.choices.columns:
        return False
    found = [number for number, *_ in _lines(document.head[:_HEAD].lstrip())]
    return len(found) > 1 or found[:1] == [1]


FORMAT = Format(name="chapters", recognises=_recognises, read=_read, step="chapter")
