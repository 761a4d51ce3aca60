"""Lists of segments without names of columns: a line each, with start, end and label.

Audacity's label tracks have this form, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cefito.markup import Faults
from cefito.tracks.document import Document, Format, StepRow, Told
from cefito.tracks.track import Track

_LINE = re.compile(r"[ \t]*([0-9]+(?:\.[0-9]+)?)[ \t]+([0-9]+(?:\.[0-9]+)?)(?:[ \t]+(\S.*)|[ \t]*)")
_FRAMES = (
    "holds whole numbers alone, seconds or frames. Give the frames per second, or write seconds "
    "with decimals, as in 4.0."
)


def _lines(text: str) -> Iterator[tuple[int, re.Match[str] | None]]:
    """Yield the number of each line that is no comment, and its times and label."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, _LINE.fullmatch(line)


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the segments; times are seconds if one has decimals, else frames."""
    faults, segments = Faults(), list(_lines(document.text))
    times = [time for _, match in segments if match for time in match.groups()[:2]]
    frames, rate = not any("." in time for time in times), 1.0
    if frames:
        rate = document.rate(document.video, problem=_FRAMES)
        document.notes["segments, whose times were read as frames"] += len(segments)
    for number, match in segments:
        place = document.place(f"line {number}")
        if match is None:
            faults.add("line", place, "is not a start, an end and a label. Correct the line.")
            continue
        start, end = (float(time) / rate for time in match.groups()[:2])
        yield StepRow(document.video, match[3] or "", start, end, place)
    faults.check()


def _recognises(document: Document) -> bool:
    """Whether the first line has two times, the second not before the first, and a label."""
    first = next((match for _, match in _lines(document.head.replace("\r", "\n"))), None)
    return first is not None and bool(first[3]) and float(first[1]) <= float(first[2])


def _write(videos: Sequence[Track]) -> str:
    """Return the segments of one video; times have decimals, which seconds are told by."""
    (video,) = videos
    names = (" ".join(step.name.split()) for step in video.steps)
    lines = zip(video.steps, names, strict=True)
    return "".join(f"{step.start:.6f}\t{step.end:.6f}\t{name}\n" for step, name in lines)


FORMATS = (
    Format(
        name="list of segments",
        endings=(".txt", ".lab"),
        told=Told.TIMES,
        recognises=_recognises,
        read=_read,
        step="segment",
        key="segments",
        write=_write,
        single=True,
    ),
)
