"""BORIS's aggregated events, CSV or TSV: one line an event; those with a duration are steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cefito.data.readers.csv_file import csv_rows
from cefito.data.readers.formats.document import Document, Format, StepRow, video_name
from cefito.errors import explained
from cefito.times import parse_seconds

__all__ = ["FORMAT"]

_AGGREGATED = "Choose Observations > Export events > Aggregated events in BORIS."
_MEDIA = ("media file name", "media file path", "media file")
_NEEDED = ("behavior", "start (s)", "stop (s)")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the state events; times count from the start of the observation's only video."""
    if document.text.lstrip().startswith("{"):
        raise document.wrong(f"is a project, not an export. {_AGGREGATED}")
    films: dict[str, str] = {}  # of observations
    for place, row in csv_rows(document.text, document.place(), _AGGREGATED):
        missing = [column for column in _NEEDED if column not in row]
        if missing:
            raise document.wrong(f"has no column '{missing[0]}'. {_AGGREGATED}")
        if (row.get("behavior type") or "").strip().upper().startswith("POINT"):
            document.left_out["point events, which have no duration"] += 1
            continue
        if any((row.get(column) or "").strip() for column in row if column.startswith("modifier")):
            document.left_out["modifiers of behaviors"] += 1
        observation = (row.get("observation id") or "").strip()
        media = next((row[column] for column in _MEDIA if row.get(column)), "")
        video = video_name(media) or observation or document.video
        if observation and films.setdefault(observation, video) != video:
            problem = f"observation '{observation}' has several videos, whose times add up"
            raise document.wrong(f"{problem}. Code one observation for each video.")
        with explained(place, "has no times", "Fix unpaired events in BORIS and export again."):
            start, end = (parse_seconds(row[column] or "") for column in _NEEDED[1:])
        yield StepRow(
            video, row["behavior"] or "", start, end, place, _cell(row, "task"), _cell(row, "split")
        )


def _cell(row: dict[str, Any], column: str) -> str:
    """An independent variable of the observation, if there is one of that name."""
    return " ".join((row.get(column) or "").split())


def _recognises(document: Document) -> bool:
    text = document.head
    if text.lstrip().startswith("{"):
        return '"behaviors_conf"' in text
    columns = {cell.strip(' "').casefold() for cell in re.split(r"[,;\t]", text.partition("\n")[0])}
    columns = {cell.strip('\r "') for cell in columns}
    return {"behavior", "observation id"} <= columns or {"behavior", "start (s)"} <= columns


FORMAT = Format(name="BORIS", recognises=_recognises, read=_read, step="state event")
