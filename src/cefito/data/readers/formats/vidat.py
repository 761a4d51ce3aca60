"""Vidat's annotations, JSON: actions in seconds, with their names in the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cefito.data.readers.formats.document import Document, Format, LooseRecord
from cefito.data.readers.formats.films import StepRow
from cefito.times import Seconds


class _Video(LooseRecord):
    src: str | None = None


class _Action(LooseRecord):
    start: Seconds
    end: Seconds
    action: int


class _Actions(LooseRecord):
    video: _Video = _Video()
    actionAnnotationList: tuple[_Action, ...]  # noqa: N815 (Vidat's names)
    objectAnnotationListMap: Mapping[str, Any] = {}  # noqa: N815
    regionAnnotationListMap: Mapping[str, Any] = {}  # noqa: N815
    skeletonAnnotationListMap: Mapping[str, Any] = {}  # noqa: N815


class _Label(LooseRecord):
    id: int
    name: str


class _Labels(LooseRecord):
    actionLabelData: tuple[_Label, ...] = ()  # noqa: N815


class _File(LooseRecord):
    annotation: _Actions
    config: _Labels


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the actions; a film that was opened from a disk has no name in the file."""
    value = document.json()
    if isinstance(value, dict) and not isinstance(value.get("config"), dict):
        problem = "holds no configuration, and so no names of actions. Export it with both"
        raise document.wrong(f"{problem}.")
    file = document.record(_File, value)
    labels = ((label.id, label.name) for label in file.config.actionLabelData)
    names = document.unique(labels, "action labels with the id")
    about = file.annotation
    for drawn in (
        about.objectAnnotationListMap,
        about.regionAnnotationListMap,
        about.skeletonAnnotationListMap,
    ):
        if drawn:
            document.left_out["frames with objects, regions or skeletons"] += len(drawn)
    source = about.video.src or ""
    video = "" if source.startswith(("blob:", "data:")) else document.film(source)
    unknown = {
        number: action.action
        for number, action in enumerate(about.actionAnnotationList, 1)
        if action.action not in names
    }
    for number, unnamed in unknown.items():
        more = f" ({len(unknown)} actions have such ids)" if len(unknown) > 1 else ""
        problem = f"has the id {unnamed}, which the configuration does not name{more}"
        raise document.wrong(f"{problem}. Export it again.", f"action {number}")
    for number, action in enumerate(about.actionAnnotationList, 1):
        place = document.place(f"action {number}")
        label = names[action.action]
        yield StepRow(video or document.video, label, action.start, action.end, place)


FORMAT = Format(
    name="Vidat",
    recognises=lambda document: '"actionAnnotationList"' in document.head,
    read=_read,
    step="action",
)
