"""Chapters of a video as in its description on YouTube: lines with a time and a title.

A line may hold a range of times, whose end is then known. Times count milliseconds behind three
colons ("0:00:04:500") and, with two digits there, frames ("00:00:04:12").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cefito.data.readers.csv_file import Faults
from cefito.data.readers.formats.document import Document, Format, StepRow
from cefito.times import parse_seconds

# one letter for one, so that places in a line stay
_PLAIN = str.maketrans(
    "０１２３４５６７８９：．，；　（）［］【】〜～－—–", "0123456789:.,; ()[][]~~---"
)
_TIME = r"((?:[0-9]{1,3}:)?[0-9]{1,3}:[0-5][0-9](?:[:;.,][0-9]{1,3})?)(?!:?[0-9]|[.,;][0-9])"
_RANGE = (
    rf"[(\[]?{_TIME}(?:[ \t]*(?:-+>?|→|~|to|bis|until|[ \t])[ \t]*{_TIME})?"
    r"(?:[)\]](?:\(https?:[^)\s]*\))?)?+"
)
_NUMBER = (  # of the chapter, in front
    r"(?:(?:(?:chapter|step|part) ?|#)?[0-9]{1,3}(?![0-9]*[:.,;][0-9])[^\w\[(]{1,5})?"
)
_FIRST = re.compile(
    rf"[^\w(\[#]{{0,9}}{_NUMBER}{_RANGE}(?:(?<=[)\]])|(?=[^\w,;]|[^\W\x00-\x7f]|$))", re.IGNORECASE
)
_LAST = re.compile(rf"(?<=[ \t\-|:(\[]){_RANGE}$", re.IGNORECASE)
_SEVERAL = re.compile(rf"{_TIME}.*{_TIME}|-[ \t]*{_TIME}$")
_MARKS = " \t\u3000-–—|:.~〜：▸►▶→•·»>"  # between time and title
_TIMECODE = re.compile(r"(.*[0-9])[:;]([0-9]{1,3})")
_HEAD = 1 << 16  # letters in which chapters are recognised


class _Chapter(NamedTuple):
    number: int  # of its line
    start: str
    end: str | None
    title: str


def _lines(text: str) -> list[_Chapter]:
    """Return each line that is a chapter: with times in front, or else at the end."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    found: list[_Chapter] = []
    for front in (True, False):
        for number, line in lines if not found else ():
            plain = line.translate(_PLAIN)
            match = (_FIRST.match if front else _LAST.search)(plain)
            columns = plain.count("\t") if front else len(re.findall(r"[,;\t]", plain))
            if match is None or columns > 1 + (front and match[2] is not None):
                continue
            title = (line[match.end() :] if front else line[: match.start()]).strip(_MARKS)
            if title and not re.match(_TIME, title.translate(_PLAIN)):
                found.append(_Chapter(number, match[1], match[2], title))
    return found


def _seconds(document: Document, time: str) -> float:
    """Return the seconds of a time, also of one with milliseconds or frames behind a colon."""
    code = _TIMECODE.fullmatch(time) if len(re.findall("[:;]", time)) == 3 or ";" in time else None
    if code is None:
        return parse_seconds(time)
    per_second = 1000.0 if len(code[2]) == 3 else document.rate(document.video)
    if int(code[2]) >= per_second > 1:
        raise ValueError(f"{time!r} has {code[2]} of {per_second:g} frames")
    return parse_seconds(code[1]) + int(code[2]) / per_second


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the chapters; each ends where it says or the next begins, the last with the video."""
    text = document.text
    listed = _lines(text)
    starts = [_seconds(document, chapter.start) for chapter in listed]
    faults = Faults()
    for chapter, start, following in zip(listed, starts, [*starts[1:], None], strict=True):
        where = document.place(f"line {chapter.number}")
        end = following if chapter.end is None else _seconds(document, chapter.end)
        if chapter.end is None and following is not None and following <= start:
            faults.add("order", where, "begins no earlier than the next one. Correct its time.")
        if _SEVERAL.search(chapter.title.translate(_PLAIN)):
            problem = "holds several times. Write one chapter a line, as 0:30 - 1:05 Boil water."
            faults.add("several times", where, problem)
        yield StepRow(document.video, chapter.title, start, end, where)
    faults.check()
    if others := sum(bool(line.strip()) for line in text.split("\n")) - len(listed):
        document.left_out["lines without a time"] += others


def _recognises(document: Document) -> bool:
    """Whether the first line, or at least two, are chapters; columns belong to tables."""
    if document.choices.columns:
        return False
    found = [chapter.number for chapter in _lines(document.head[:_HEAD].lstrip())]
    return len(found) > 1 or found[:1] == [1]


FORMAT = Format(name="chapters", recognises=_recognises, read=_read, step="chapter")
