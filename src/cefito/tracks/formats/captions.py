"""Captions, WebVTT, SubRip (SRT) and SubViewer (SBV): each cue is a step, its text the action.

Cues begin as WebVTT's standard says: at a line of times that is the first or the second of a block,
or follows the text of another cue.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from cefito.markup import Faults, parse_seconds, plain
from cefito.tracks.document import Document, Format, StepRow
from cefito.tracks.track import Track

_Line = tuple[int, str]  # number and text
_ARROW = "-->"
_MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_ASIDE = re.compile(r"WEBVTT|(?:NOTE|STYLE|REGION)(?:\s|$)|\[(?!br\])[A-Z ]+\]")
_SRT = r"\A\s*+(?:[0-9]+[ \t]*\r?\n)?[^\n<]{0,80}-->"
_COMMA = re.compile(
    r"\s*([0-9]{1,3}:[0-9]{2}:[0-9]{2}[.][0-9]{1,3}),([0-9:]{7,9}[.][0-9]{1,3})\s*$"
)
_SBV = r"\A\s*+(?:\[[^\n]*\n\s*+)*+" + _COMMA.pattern.removeprefix(r"\s*")
_SHOWN = 40  # letters in messages


def _times(line: str) -> tuple[str, str] | None:
    """Both times of a line, with an arrow and perhaps settings behind them, or with a comma."""
    before, arrow, after = line.partition(_ARROW)
    comma = _COMMA.match(line)
    return (before, (after.split() or [""])[0]) if arrow else comma and (comma[1], comma[2])


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the cues: perhaps a number or name, a line with times, and lines of text."""
    faults = Faults()
    for block in _blocks(document.text):
        place = next((place for place, (_, line) in enumerate(block[:2]) if _times(line)), None)
        if place is None:
            if not _ASIDE.match(block[0][1]):
                document.left_out["blocks of text without times"] += 1
            continue
        number, line = block[place]
        where = document.place(f"line {number}")
        try:
            start, end = map(parse_seconds, _times(line) or ())
        except ValueError:
            expected = "is not a cue's times, as 00:05.000 --> 00:09.500. Correct the cue."
            faults.add("times", where, f"{line[:_SHOWN]!r} {expected}")
            continue
        label = html.unescape(_MARKUP.sub("", " ".join(text for _, text in block[place + 1 :])))
        label = label.replace("[br]", " ")  # of SubViewer
        yield StepRow(document.video, label, start, end, where)
    faults.check()


def _blocks(text: str) -> Iterator[list[_Line]]:
    """Numbered lines between empty lines, or up to the times of the next cue."""
    block: list[_Line] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        cued = bool(_times(line)) and any(_times(above) for _, above in block[:2])
        if block and (not line.strip() or cued or (_times(line) and len(block) > 1)):
            name = [block.pop()] if cued and block[-1][1].strip().isdecimal() else []
            yield block
            block = name
        if line.strip():
            block.append((number, line))


def _write(videos: Sequence[Track]) -> str:
    """Return the steps of one video as cues; comments before them hold the probabilities."""
    (video,) = videos
    blocks = ["WEBVTT"]
    for step in video.steps:
        times = f"{_clock(step.start)} --> {_clock(step.end)}"
        name = html.escape(plain(step.name), quote=False)
        blocks += [f"NOTE probability {step.probability:.4f}", f"{times}\n{name}"]
    return "\n\n".join(blocks) + "\n"


def _clock(seconds: float) -> str:
    """Return a time as hours, minutes, seconds and milliseconds, as in 00:01:02.500."""
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{milliseconds:03d}"


FORMATS = (
    Format(
        name="WebVTT",
        endings=(".vtt",),
        marks=(r"\A\s*WEBVTT",),
        read=_read,
        step="cue",
        key="vtt",
        write=_write,
        single=True,
    ),
    Format(name="SRT", endings=(".srt",), marks=(_SRT,), read=_read, step="cue"),
    Format(name="SBV", endings=(".sbv", ".sub"), marks=(_SBV,), read=_read, step="cue"),
)
