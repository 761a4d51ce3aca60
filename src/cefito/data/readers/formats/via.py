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
        yield from _steps(
            document, video, entry.z, entry.av, project.attribute, where, f"view {entry.vid}"
        )


def _film(document: Document, file: _File) -> str:
    """Address of a file; one of a disk has a name alone, or a copy of its data as address."""
    source = str(file.src)
    inline = source.startswith(("blob:", "data:"))
    return ("" if inline else document.film(source)) or document.film(file.fname)


def _steps(
    document: Document,
    video: str,
    times: tuple[float, ...],
    values: Mapping[str, str],
    attributes: Mapping[str, _Attribute],
    where: str,
    coding: str,
) -> Iterator[StepRow]:
    """The steps of one entry: one for each value of each attribute; checkboxes have several."""
    if len(times) != 2:
        document.left_out["entries of whole files or still frames"] += 1
        return
    if not video:
        raise document.wrong("belongs to no video file. Export it again.", where)
    place = document.place(where)
    if not values:
        yield StepRow(video, "", *times, place, coding=coding)
    for key, value in values.items():
        attribute = attributes.get(key, _Attribute(aname=key))
        options = {} if attribute.type == _TEXT else attribute.options
        several = attribute.type == _CHECKBOX and value not in options
        for each in value.split(",") if several else [value]:
            if each and options and each not in options:
                document.left_out[
                    f"values of '{attribute.aname}' that are none of its options"
                ] += 1
                continue
            label = options.get(each, each)
            yield StepRow(video, label, *times, place, tier=attribute.aname, coding=coding)


def _recognises(document: Document) -> bool:
    text = document.head
    return text.lstrip().startswith("{") and (
        '"vid_list"' in text or ('"fid_list"' in text and '"metadata"' in text)
    )


FORMAT = Format(
    name="VIA", recognises=_recognises, read=_read, step="temporal segment", tier="attribute"
)
