"""Vidat's annotations, JSON: actions in seconds, with their names in the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from cefito.data.readers.formats.document import (
    Document,
    Format,
    LooseRecord,
    StepRow,
    video_name,
)

__all__ = ["FORMAT"]


class _Video(LooseRecord):
    src: str | None = None


class _Action(LooseRecord):
    start: float
    end: float
    action: int


class _Actions(LooseRecord):
    video: _Video = _Video()
    actionAnnotationList: tuple[_Action, ...]  # noqa: N815 (Vidat's names)


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
    names = {label.id: label.name for label in file.config.actionLabelData}
    source = file.annotation.video.src or ""
    video = document.video if source.startswith("blob:") else video_name(source) or document.video
    for number, action in enumerate(file.annotation.actionAnnotationList, 1):
        where = f"action {number}"
        if action.action not in names:
            problem = f"has the id {action.action}, which the configuration does not name"
            raise document.wrong(f"{problem}. Export it again.", where)
        place = document.place(where)
        yield StepRow(video, names[action.action], action.start, action.end, place)


FORMAT = Format(
    name="Vidat",
    recognises=lambda document: '"actionAnnotationList"' in document.head,
    read=_read,
    step="action",
)
