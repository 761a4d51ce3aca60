"""Captions, WebVTT and SubRip (SRT): each cue is a step, its text the name of the action."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format, StepRow
from cefito.times import parse_seconds

__all__ = ["SRT", "VTT"]

_ARROW = "-->"
_MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_ASIDE = ("WEBVTT", "NOTE", "STYLE", "REGION", "X-TIMESTAMP-MAP")
_SRT = re.compile(r"\s*(?:\d+[ \t]*\r?\n)?[^\n]{0,80}-->")
_HEAD = 4096  # letters in which the first cue begins
_SHOWN = 40  # letters in messages


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the cues: a line with times, and lines of text."""
    for block in _blocks(document.text):
        number, line = block[0]
        if line.startswith(_ASIDE):
            continue
        rest = block[1:]
        if _ARROW not in line and rest:  # the cue's number or name
            (number, line), *rest = rest
        where = f"line {number}"
        before, _, after = line.partition(_ARROW)
        try:
            start, end = parse_seconds(before), parse_seconds((after.split() or [""])[0])
        except ValueError as problem:
            expected = "is not a cue's times, as 00:05.000 --> 00:09.500. Correct the cue."
            raise document.wrong(f"{line[:_SHOWN]!r} {expected}", where) from problem
        label = html.unescape(_MARKUP.sub("", " ".join(text for _, text in rest)))
        yield StepRow(document.video, label, start, end, document.place(where))


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines between empty lines."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield block
            block = []


VTT = Format(
    name="WebVTT",
    recognises=lambda document: document.head.startswith("WEBVTT"),
    read=_read,
    step="cue",
)
SRT = Format(
    name="SRT",
    recognises=lambda document: bool(_SRT.match(document.head[:_HEAD])),
    read=_read,
    step="cue",
)
