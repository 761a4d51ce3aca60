"""Markers of an edit decision list (EDL), as DaVinci Resolve writes and reads them.

Each is an event of a frame, with a line "|C:COLOUR |M:NAME |D:FRAMES". Timelines begin at one hour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from cefito.markup import plain
from cefito.tracks.document import Document, Format, StepRow, timecode, whole_number
from cefito.tracks.track import Track

_CODE = r"[0-9]{2}[:;][0-9]{2}[:;][0-9]{2}[:;][0-9]{2}"
_EVENT = re.compile(
    rf"[0-9]{{3,6}} +\S+ +\S+ +[CDWK]\S* +(?:[0-9]{{3}} +)?{_CODE} +{_CODE} +({_CODE}) +{_CODE} *"
)
_MARKER = re.compile(r"\|C:\S* *\|M:(.*?) *\|D:([0-9]+) *$")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the markers, at the time of the event before each."""
    rate, markers = document.rate(document.video), list[tuple[str, str, float, int]]()
    event = ""
    for number, line in enumerate(document.text.split("\n"), 1):
        if match := _EVENT.fullmatch(line.strip()):
            event = match[1]
        elif match := _MARKER.search(line):
            if not event:
                raise document.wrong("names no time. Export the markers again.", f"line {number}")
            document.left_out["notes of markers"] += bool(line[: match.start()].strip())
            start = document.seconds(event, document.video)
            markers.append((f"line {number}", match[1], start, whole_number(match[2])))
            hour, event = f"01:00:00{event[-3]}00", ""
    begin = document.seconds(hour, document.video) if markers else 0.0
    late = all(start >= begin for _, _, start, _ in markers)
    if late:
        document.notes["markers, whose timeline begins at one hour"] += len(markers)
    if len(markers) > 1 and all(frames <= 1 for *_, frames in markers):
        raise document.wrong("has markers of one frame alone. Give them their lengths.")
    for place, name, at, frames in markers:
        start = at - begin * late
        yield StepRow(document.video, name, start, start + frames / rate, document.place(place))


def _write(videos: Sequence[Track], frame_rate: float) -> str:
    """Return the steps of one video as markers of a timeline that begins at one hour."""
    (video,) = videos
    lines = [f"TITLE: {plain(video.video)}", "FCM: NON-DROP FRAME", ""]
    begin = 3600 * math.ceil(frame_rate)
    for number, step in enumerate(video.steps, 1):
        first = round(step.start * frame_rate)
        length = max(1, round(step.end * frame_rate) - first)
        codes = [timecode(begin + frame, frame_rate) for frame in (first, first + 1)] * 2
        name = plain(step.name).replace("|", "/")
        lines += [f"{number:03d}  001      V     C        {' '.join(codes)}  "]
        lines += [f" |C:ResolveColorBlue |M:{name} |D:{length}", ""]
    return "\n".join(lines)


FORMATS = (
    Format(
        name="EDL markers",
        endings=(".edl",),
        marks=(r"^\s*[0-9]{3,6} +\S+ +\S+ +[CDWK]", r"\|M:.*\|D:[0-9]"),
        read=_read,
        step="marker",
        key="edl",
        write=_write,
        single=True,
        frames=True,
    ),
)
