"""Temporal segments of the VGG Image Annotator, version 3: projects in JSON, and CSV exports."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from cefito.data.readers.formats.document import (
    Document,
    Format,
    LooseRecord,
    StepRow,
    video_name,
)

__all__ = ["FORMAT"]

_HEADER = re.compile(r"^# ?CSV_HEADER ?= ?(.*metadata_id.*)$", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^# ?ATTRIBUTES? ?= ?(\{.*\})", re.MULTILINE)


class _Attribute(LooseRecord):
    aname: str
    options: dict[str, str] = Field(default_factory=dict)


class _File(LooseRecord):
    fname: str = ""
    src: Any = ""


class _View(LooseRecord):
    fid_list: tuple[str | int, ...]


class _Metadata(LooseRecord):
    """Values of attributes at no, one or two times in seconds."""

    vid: str | int
    z: tuple[float, ...] = ()
    av: dict[str, str] = Field(default_factory=dict)


class _Project(LooseRecord):
    attribute: dict[str, _Attribute]
    file: dict[str, _File]
    metadata: dict[str, _Metadata]
    view: dict[str, _View]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the values of every attribute of the temporal segments."""
    return _read_csv(document) if "CSV_HEADER" in document.head else _read_project(document)


def _read_project(document: Document) -> Iterator[StepRow]:
    project = document.record(_Project, document.json())
    for name, entry in project.metadata.items():
        where = f"segment {name}"
        file = project.file[str(project.view[str(entry.vid)].fid_list[0])]
        video = video_name(file.fname) or video_name(str(file.src))
        yield from _steps(document, video, entry.z, entry.av, project.attribute, where)


def _read_csv(document: Document) -> Iterator[StepRow]:
    text = document.text
    header = _HEADER.search(text)
    if header is None:
        raise document.wrong("has no line CSV_HEADER. Export it again.")
    columns = [column.strip() for column in header[1].split(",")]
    found = _ATTRIBUTES.search(text)
    attributes = {
        key: _Attribute(aname=value)
        if isinstance(value, str)
        else document.record(_Attribute, value)
        for key, value in (json.loads(found[1]) if found else {}).items()
    }
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line[:1] != "#"]
    for (number, _), cells in zip(
        ((number, line) for number, line in lines if line.strip()),
        csv.reader((line for _, line in lines if line.strip()), strict=True),
        strict=True,
    ):
        where = f"line {number}"
        if len(cells) < len(columns):
            problem = f"has {len(cells)} cells; expected {len(columns)}. Export it again"
            raise document.wrong(f"{problem}.", where)
        row = dict(zip(columns, cells, strict=False))
        if "temporal_coordinates" in row:
            times = tuple(map(float, json.loads(row["temporal_coordinates"])))
        else:
            both = row["temporal_segment_start"], row["temporal_segment_end"]
            times = tuple(float(time) for time in both if time.strip())
        video = video_name(json.loads(row["file_list"])[0])
        yield from _steps(document, video, times, json.loads(row["metadata"]), attributes, where)


def _steps(
    document: Document,
    video: str,
    times: tuple[float, ...],
    values: Mapping[str, str],
    attributes: Mapping[str, _Attribute],
    where: str,
) -> Iterator[StepRow]:
    """The steps of one entry: one for each attribute that has a value."""
    if len(times) != 2:
        document.left_out["entries of whole files or still frames"] += 1
        return
    if not video:
        raise document.wrong("belongs to no video file. Export it again.", where)
    place = document.place(where)
    if not values:
        yield StepRow(video, "", *times, place)
    for key, value in values.items():
        attribute = attributes.get(key, _Attribute(aname=key))
        label = attribute.options.get(value, value)
        yield StepRow(video, label, *times, place, tier=attribute.aname)


def _recognises(document: Document) -> bool:
    text = document.head
    if text.lstrip().startswith("{"):
        return '"vid_list"' in text or ('"fid_list"' in text and '"metadata"' in text)
    return text.startswith("#") and "CSV_HEADER" in text


FORMAT = Format(
    name="VIA", recognises=_recognises, read=_read, step="temporal segment", tier="attribute"
)
