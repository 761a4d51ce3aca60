"""JSON lines, a `Track` each, as `cefito recognise` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from cefito.tracks.document import Document, Format, StepRow
from cefito.tracks.track import Track


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the steps; as in all files, they count as given by a person."""
    for number, line in enumerate(document.text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        track, place = document.record(Track, document.json(line), where), document.place(where)
        for step in track.steps:
            times, facts = (step.start, step.end), (track.task, track.split)
            row = StepRow(track.video, step.name, *times, place, *facts, errors=step.errors)
            yield row


def write(videos: Sequence[Track]) -> str:
    """Return one JSON object a video, a line each."""
    return "".join(json.dumps(video.to_dict(), ensure_ascii=False) + "\n" for video in videos)


FORMATS = (
    Format(
        name="JSON lines",
        endings=(".jsonl",),
        marks=(r"\A\s*\{", '"task_probability"'),
        read=_read,
        step="recognised step",
        key="jsonl",
        write=write,
    ),
)
