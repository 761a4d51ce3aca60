"""BORIS's events, CSV or TSV: aggregated, one line a step, or tabular, with its START and STOP."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cefito.errors import DataError
from cefito.markup import csv_rows, listed, parse_seconds
from cefito.tracks.document import Document, Format, StepRow, Told, film_address

_AGGREGATED = "Choose Observations > Export events > Aggregated events in BORIS."
_MEDIA = ("media file name", "media file path", "media file")
_NOTHING = ("", "na", "none", "not found", "live", "live observation")
_PLAYER = re.compile(r"player #?(\d+)\s*:", re.I)
_TABLE = re.compile(r'^(?=.*[,;\t]"?Behavior"?[,;\t\r\n])"?Time"?[,;\t]', re.MULTILINE)
_HEAD = 1 << 16  # letters before the table of a tabular export up to version 7
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
    coded: list[tuple[_Observation, str, StepRow]] = []
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
        coded.append((about, name, StepRow(name, label, *times, place, *facts)))
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
    for about, name, step in coded:
        film = next(iter((*about.media, *about.queue)), name)
        coding = f"observation '{name}'" if name else ""
        tier = step.tier if subjects else ""
        video = document.film(film) or document.video
        yield replace(step, video=video, coding=coding, tier=tier)


def _events(document: Document) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Place, cells, start and end of each state event."""
    opened: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    faults: list[str] = []
    for place, row in _lines(document):
        if "behavior" not in row:
            raise document.wrong(f"has no column 'behavior'. {_AGGREGATED}")
        kind = (_cell(row, "behavior type") or _cell(row, "status")).upper()
        modifiers = [_cell(row, column) for column in row if column.startswith("modifier")]
        if kind.startswith("POINT"):
            document.left_out["point events, which have no duration"] += 1
            continue
        if any(modifiers) and kind != "STOP":
            document.left_out["modifiers of behaviors"] += 1
        if {"start (s)", "stop (s)"} <= row.keys():
            times = [_cell(row, column) for column in ("start (s)", "stop (s)")]
        elif "time" in row and kind in ("START", "STOP"):
            names = (_cell(row, key) for key in ("observation id", "subject", "behavior"))
            before = opened[(*names, *modifiers)]
            if kind == "START":
                before.append((place, _cell(row, "time")))
                continue
            times = [before.pop(0)[1] if before else "", _cell(row, "time")]
        else:
            raise document.wrong(f"has no columns 'start (s)', nor START and STOP. {_AGGREGATED}")
        try:
            start, end = map(parse_seconds, times)
        except ValueError:
            faults.append(place)
        else:
            yield place, row, start, end
    faults += [place for before in opened.values() for place, _ in before]
    if faults:
        others = listed((place.rpartition(", ")[2] for place in faults[1:]), _SHOWN)
        also = f", nor has {others}" * bool(others)
        problem = f"{faults[0]}: has no times of start and stop{also}"
        raise DataError(f"{problem}. Fix unpaired events in BORIS and export again.")


def _lines(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and cells of each line; up to version 7, what is said of all stands above the table."""
    text, table = document.text, _TABLE.search(document.text[:_HEAD])
    above = {
        cells[0].strip(' ":').casefold(): cells[1].strip(' "')
        for line in text[: table.start() if table else 0].split("\n")
        if len(cells := re.split(r"[,;\t]", line)) > 1
    }
    above |= {"source": f"player #1:{above['player #1']}"} if "player #1" in above else {}
    rows = csv_rows(text, document.place(), _AGGREGATED, start=table.start() if table else None)
    for place, row in rows:
        yield place, {**above, **row}


def _films(text: str) -> list[str]:
    """The films of the first player in a list as "player #1:a.mp4;player #2:b.mp4"."""
    _, *parts = _PLAYER.split(text)  # numbers of players, each before its films
    pairs = zip(parts[::2], parts[1::2], strict=True)
    of_first = [films for number, films in pairs if number == parts[0]] or [text]
    films = (film.strip() for films_text in of_first for film in films_text.split(";"))
    return [film for film in films if film.casefold() not in _NOTHING]


def _cell(row: dict[str, Any], column: str) -> str:
    return " ".join((row.get(column) or "").split())


def _recognises(document: Document) -> bool:
    columns = document.columns
    if "behavior" in columns and "video" not in columns:
        return "observation id" in columns or columns >= {"start (s)", "stop (s)", "subject"}
    return "observation id" in columns and _TABLE.search(document.head[:_HEAD]) is not None


FORMATS = (
    Format(
        name="BORIS",
        endings=(".csv", ".tsv"),
        told=Told.COLUMNS_OF_TOOLS,
        recognises=_recognises,
        read=_read,
        step="state event",
        tier="subject",
    ),
)
