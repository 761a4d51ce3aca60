"""Temporal segments of the VGG Image Annotator, version 3: projects in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from cefito.markup import Seconds
from cefito.tracks.document import Document, Format, LooseRecord, StepRow
from cefito.tracks.track import Track

_TEXT, _CHECKBOX = 1, 2  # types of attributes


class _Attribute(LooseRecord):
    aname: str
    type: int = 0
    options: dict[str, str] = Field(default_factory=dict)


class _File(LooseRecord):
    fname: str = ""
    src: Any = ""


class _View(LooseRecord):
    fid_list: tuple[str | int, ...]


class _Metadata(LooseRecord):
    """Values of attributes at no, one or two times in seconds."""

    vid: str | int
    z: tuple[Seconds, ...] = ()
    av: dict[str, str] = Field(default_factory=dict)


class _Project(LooseRecord):
    attribute: dict[str, _Attribute]
    file: dict[str, _File]
    metadata: dict[str, _Metadata]
    view: dict[str, _View]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the values of every attribute of the temporal segments."""
    project = document.record(_Project, document.json())
    used = {str(entry.vid) for entry in project.metadata.values()}
    unused = sum(bool(view.fid_list) for key, view in project.view.items() if key not in used)
    if unused:
        document.left_out["videos without a segment"] += unused
    for name, entry in project.metadata.items():
        where, view = f"segment {name}", project.view[str(entry.vid)]
        video = _film(document, project.file[str(view.fid_list[0])])
        if len(entry.z) != 2:
            document.left_out["entries of whole files or still frames"] += 1
            continue
        if not video:
            raise document.wrong("belongs to no video file. Export it again.", where)
        place, coding = document.place(where), f"view {entry.vid}"
        for tier, label in _values(document, entry.av, project.attribute):
            yield StepRow(video, label, *entry.z, place, tier=tier, coding=coding)


def _film(document: Document, file: _File) -> str:
    """Address of a file; one of a disk has a name alone, or a copy of its data as address."""
    source = str(file.src)
    inline = source.startswith(("blob:", "data:"))
    return ("" if inline else document.film(source)) or document.film(file.fname)


def _values(
    document: Document, values: Mapping[str, str], attributes: Mapping[str, _Attribute]
) -> Iterator[tuple[str, str]]:
    """Each attribute's name with each of its values, in words; checkboxes have several."""
    if not values:
        yield "", ""
    for key, value in values.items():
        attribute = attributes.get(key, _Attribute(aname=key))
        options = {} if attribute.type == _TEXT else attribute.options
        several = attribute.type == _CHECKBOX and value not in options
        for option in value.split(",") if several else [value]:
            if option and options and option not in options:
                unknown = f"values of '{attribute.aname}' that are none of its options"
                document.left_out[unknown] += 1
            else:
                yield attribute.aname, options.get(option, option)


def _write(videos: Sequence[Track]) -> str:
    """Return a project of VIA 3: temporal segments with the text attribute `step`."""
    numbers = [str(number) for number in range(1, len(videos) + 1)]
    media = [video.media for video in videos]
    project = {"pid": "__VIA_PROJECT_ID__", "pname": "steps", "data_format_version": "3.1.1"}
    attribute = {"aname": "step", "anchor_id": "FILE1_Z2_XY0", "type": 1, "desc": "", "options": {}}
    value = {
        "project": {**project, "vid_list": numbers, "creator": "cefito"},
        "config": {"file": {"loc_prefix": {str(place): "" for place in range(1, 5)}}, "ui": {}},
        "attribute": {"1": {**attribute, "default_option_id": ""}},
        "file": {  # type 4: a video; place 1: on this machine
            key: {"fid": key, "fname": Path(address).name, "type": 4, "loc": 1, "src": address}
            for key, address in zip(numbers, media, strict=True)
        },
        "view": {key: {"fid_list": [key]} for key in numbers},
        "metadata": {
            f"{key}_{number}": {
                "vid": key,
                "flg": 0,
                "z": [round(step.start, 3), round(step.end, 3)],
                "xy": [],
                "av": {"1": step.name},
            }
            for key, video in zip(numbers, videos, strict=True)
            for number, step in enumerate(video.steps, 1)
        },
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


FORMATS = (
    Format(
        name="VIA",
        endings=(".json",),
        marks=(r"\A\s*\{", '"(?:vid|fid)_list"', '"attribute"'),
        read=_read,
        step="temporal segment",
        tier="attribute",
        key="via",
        write=_write,
    ),
)
