"""Chapters of a video as in its description on YouTube: lines with a time and a title.

A line may hold a range of times, whose end is then known. Times count milliseconds behind three
colons ("0:00:04:500") and, with two digits there, frames ("00:00:04:12").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cefito.markup import Faults
from cefito.tracks.document import STRUCTURED, Document, Format, StepRow, Told

# one letter for one, so that places in a line stay
_PLAIN = str.maketrans(
    "０１２３４５６７８９：．，；　（）［］【】〜～－—–", "0123456789:.,; ()[][]~~---"
)
_TIME = r"((?:[0-9]{1,3}:)?[0-9]{1,3}:[0-5][0-9](?:[:;.,][0-9]{1,3})?)(?!:?[0-9]|[.,;][0-9])"
_RANGE = (
    rf"[(\[]?{_TIME}(?:[ \t]*(?:-+>?|→|~|to|bis|until|[ \t])[ \t]*{_TIME})?"
    r"(?:[)\]](?:\(https?:[^)\s]*\))?)?+"
)
_WORD = r"(?:chapter|step|part|kapitel|schritt|teil|étape|paso)"
# of the chapter, in front
_NUMBER = rf"(?:(?:{_WORD} ?|#)?[0-9]{{1,3}}(?![0-9]*[:.,;][0-9])[^\w\[(]{{1,5}})?"
_BEHIND = re.compile(  # the number of the chapter behind its time: "2.", "#2:", "Step 2", "2 -"
    r"[#(]?(?:[0-9]{1,3}(?:/[0-9]{1,3})?(?:[.):\]、]|\ufe0f?\u20e3| +-(?= ))|[①-⑳]"
    rf"|(?:{_WORD} ?|#|n[or]\. ?)[0-9]{{1,3}}(?:/[0-9]{{1,3}})?[.):]?(?= |-))[ \t\-:]*(?=[^\s0-9])",
    re.IGNORECASE,
)
_ALONE = re.compile(r"0?([0-9]{1,2}) +(?=[^\s0-9])")  # a number with no mark behind it
_OF_DAY = re.compile(r"[ap]\.?m\b", re.IGNORECASE)
_LATE = 300  # seconds; a list that begins later may hold times of day
_FIRST = re.compile(
    rf"[^\w(\[#\"']{{0,9}}{_NUMBER}{_RANGE}(?:(?<=[)\]])|(?=[^\w,;]|[^\W\x00-\x7f]|$))",
    re.IGNORECASE,
)
_LAST = re.compile(rf"(?<=[ \t\-|:(\[])(?<![0-9]:){_RANGE}$", re.IGNORECASE)
_SEVERAL = re.compile(rf"{_TIME}.*{_TIME}|-[ \t]*{_TIME}$")
_MARKS = " \t\u3000-–—|:.~〜：▸►▶→•·»>"  # between time and title
_HEAD = 1 << 16  # letters in which chapters are recognised


class _Chapter(NamedTuple):
    number: int  # of its line
    start: str
    end: str | None
    title: str


def _lines(text: str) -> list[_Chapter]:
    """Return each line that is a chapter: with times in front, or else at the end.

    Times at the end may be lengths or anything else, unless all lines have two, or follow each
    other from 0:00 on.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    chapters: list[_Chapter] = []
    for front in (True, False):
        for number, line in lines:
            plain = line.translate(_PLAIN)
            match = (_FIRST.match if front else _LAST.search)(plain)
            columns = plain.count("\t") if front else len(re.findall(r"[,;\t]", plain))
            if match is None or columns > 1 + (front and match[2] is not None):
                continue
            title = (line[match.end() :] if front else line[: match.start()]).strip(_MARKS)
            if title and not re.match(_TIME, title.translate(_PLAIN)):
                chapters.append(_Chapter(number, match[1], match[2], title))
        if chapters and (front or all(chapter.end for chapter in chapters)):
            return chapters
    full = [number for number, line in lines if line]
    first = full.index(chapters[0].number) if chapters else 0
    together = [chapter.number for chapter in chapters] == full[first : first + len(chapters)]
    return chapters if together and chapters and not chapters[0].start.strip("0:;.,") else []


def _without_numbers(document: Document, chapters: list[_Chapter]) -> list[_Chapter]:
    """Remove running numbers in front of titles, as in "0:30 2. Add tea"."""
    plain = [chapter.title.translate(_PLAIN) for chapter in chapters]
    numbers = [_BEHIND.match(title) for title in plain]
    alone = [_ALONE.match(title) for title in plain]
    if [int(match[1]) for match in alone if match] == [*range(1, sum(map(bool, alone)) + 1)]:
        numbers = [behind or single for behind, single in zip(numbers, alone, strict=True)]
    count = sum(map(bool, numbers))
    if count < 2 and not any(match and re.search(r"\b1\b", match[0]) for match in numbers):
        return chapters
    document.notes["titles with a running number, which was removed"] += count
    return [
        chapter._replace(title=chapter.title[match.end() :] if match else chapter.title)
        for chapter, match in zip(chapters, numbers, strict=True)
    ]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the chapters; each ends where it says or the next begins, the last with the video."""
    text = document.text
    listed = _without_numbers(document, _lines(text))
    starts = [document.seconds(chapter.start, document.video) for chapter in listed]
    faults = Faults()
    for chapter, start, following in zip(listed, starts, [*starts[1:], None], strict=True):
        where = document.place(f"line {chapter.number}")
        end = following if chapter.end is None else document.seconds(chapter.end, document.video)
        if chapter.end is None and following is not None and following <= start:
            faults.add("order", where, "begins no earlier than the next one. Correct its time.")
        if _OF_DAY.match(chapter.title):
            faults.add("day", where, "is a time of day. Give the time since the video's start.")
        if _SEVERAL.search(chapter.title.translate(_PLAIN)):
            problem = "holds several times. Write one chapter a line, as 0:30 - 1:05 Boil water."
            faults.add("several times", where, problem)
        yield StepRow(document.video, chapter.title, start, end, where)
    faults.check()
    if starts and starts[0] >= _LATE:
        late = "first time after five minutes; times were read as those of the video, not of a day"
        document.notes[late] += 1
    if others := sum(bool(line.strip()) for line in text.split("\n")) - len(listed):
        document.left_out["lines without a time"] += others


def _recognises(document: Document) -> bool:
    """Whether the first line, or at least two, are chapters."""
    head = document.head[:_HEAD].lstrip()
    numbers = [] if STRUCTURED.match(head) else [chapter.number for chapter in _lines(head)]
    return len(numbers) > 1 or numbers[:1] == [1]


FORMATS = (
    Format(
        name="chapters",
        endings=(".txt",),
        told=Told.TIMES,
        recognises=_recognises,
        read=_read,
        step="chapter",
    ),
)
