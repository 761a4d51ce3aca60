"""BORIS's aggregated events, CSV or TSV: one line a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cefito.data.readers.csv_file import csv_rows
from cefito.data.readers.formats.document import Document, Format, StepRow, film_address
from cefito.errors import DataError
from cefito.markup import listed
from cefito.times import parse_seconds

_AGGREGATED = "Choose Observations > Export events > Aggregated events in BORIS."
_MEDIA = ("media file name", "media file path", "media file")
_NOTHING = ("", "na", "none", "not found", "live", "live observation")
_PLAYER = re.compile(r"player #?(\d+)\s*:", re.I)
_SHOWN = 5  # observations or lines in a message


@dataclass
class _Observation:
    """What the lines of an observation say of it as a whole."""

    queue: list[str]  # films of the first player
    offset: float  # seconds that are added to all times
    media: dict[str, None] = field(default_factory=dict)  # films of events
    subjects: set[str] = field(default_factory=set)


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the state events; times count from the start of the observation's only video."""
    observations: dict[str, _Observation] = {}
    early: dict[str, None] = {}
    found: list[tuple[_Observation, str, StepRow]] = []
    for place, row, start, end in _events(document):
        name, subject = _cell(row, "observation id"), _cell(row, "subject")
        queue, offset = _films(_cell(row, "source")), _cell(row, "time offset (s)")
        new = _Observation(queue, parse_seconds("0" if offset.casefold() in _NOTHING else offset))
        about = observations.setdefault(name, new)
        media = [film for key in _MEDIA for film in _films(_cell(row, key))]
        about.media |= dict.fromkeys(media[:1])
        about.subjects.add(subject)
        early |= {name: None} if start < about.offset != 0 else {}
        times, label = (start - about.offset, end - about.offset), row["behavior"] or ""
        facts = _cell(row, "task"), _cell(row, "split"), subject
        found.append((about, name, StepRow(name, label, *times, place, *facts)))
    several = [
        name
        for name, about in observations.items()
        if len({film_address(film) for film in about.media}) > 1
        or (len(about.queue) > 1 and about.queue[0] not in about.media)
    ]
    for names, fault in (
        (several, "several videos, whose times add up. Code one observation for each video"),
        (list(early), "events before its time offset. Correct the offset in BORIS, export again"),
    ):
        if names:
            said = listed((f"observation '{name}'" for name in names), _SHOWN)
            raise document.wrong(f"{said} has {fault}.")
    subjects = document.choices.tier is not None
    subjects |= any(len(about.subjects) > 1 for about in observations.values())
    for about, name, step in found:
        film = next(iter((*about.media, *about.queue)), name)
        coding = f"observation '{name}'" if name else ""
        tier = step.tier if subjects else ""
        video = document.film(film) or document.video
        yield replace(step, video=video, coding=coding, tier=tier)


def _events(document: Document) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Place, cells, start and end of each state event."""
    faults: list[str] = []
    for place, row in csv_rows(document.text, document.place(), _AGGREGATED):
        if "behavior" not in row:
            raise document.wrong(f"has no column 'behavior'. {_AGGREGATED}")
        if _cell(row, "behavior type").upper().startswith("POINT"):
            document.left_out["point events, which have no duration"] += 1
            continue
        if any(_cell(row, column) for column in row if column.startswith("modifier")):
            document.left_out["modifiers of behaviors"] += 1
        if not {"start (s)", "stop (s)"} <= row.keys():
            raise document.wrong(f"has no columns 'start (s)' and 'stop (s)'. {_AGGREGATED}")
        try:
            start, end = (parse_seconds(_cell(row, f"{end} (s)")) for end in ("start", "stop"))
        except ValueError:
            faults.append(place)
        else:
            yield place, row, start, end
    if faults:
        others = listed((place.rpartition(", ")[2] for place in faults[1:]), _SHOWN)
        also = f", nor has {others}" * bool(others)
        problem = f"{faults[0]}: has no times of start and stop{also}"
        raise DataError(f"{problem}. Fix unpaired events in BORIS and export again.")


def _films(text: str) -> list[str]:
    """The films of the first player in a list as "player #1:a.mp4;player #2:b.mp4"."""
    _, *parts = _PLAYER.split(text)  # numbers of players, each before its films
    pairs = zip(parts[::2], parts[1::2], strict=True)
    of_first = [films for number, films in pairs if number == parts[0]] or [text]
    films = (film.strip() for part in of_first for film in part.split(";"))
    return [film for film in films if film.casefold() not in _NOTHING]


def _cell(row: dict[str, Any], column: str) -> str:
    return " ".join((row.get(column) or "").split())


def _recognises(document: Document) -> bool:
    cells = re.split(r"[,;\t]", document.head.partition("\n")[0])
    columns = {cell.strip('\r "').casefold() for cell in cells}
    return "behavior" in columns and bool(columns & {"observation id", "start (s)"})


FORMAT = Format(
    name="BORIS", recognises=_recognises, read=_read, step="state event", tier="subject"
)
