"""Temporal segments of the VGG Image Annotator, version 3: projects in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from cefito.data.readers.formats.document import Document, Format, LooseRecord, StepRow
from cefito.times import Seconds

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
        for each in value.split(",") if several else [value]:
            if each and options and each not in options:
                unknown = f"values of '{attribute.aname}' that are none of its options"
                document.left_out[unknown] += 1
            else:
                yield attribute.aname, options.get(each, each)


def _recognises(document: Document) -> bool:
    text = document.head
    named = '"vid_list"' in text or '"fid_list"' in text
    return text.lstrip().startswith("{") and named and '"attribute"' in text


FORMAT = Format(
    name="VIA", recognises=_recognises, read=_read, step="temporal segment", tier="attribute"
)
