"""Label Studio's exports JSON, JSON-MIN and CSV: frames of the timeline, and spans in seconds."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
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

_TASKS = re.compile(r'"annotations"\s*:')
_STORED = re.compile(r'"(?:from_name|lead_time)"\s*:')
_CSV = '"annotation_id","annotator",'
_MIN = re.compile(r'"annotation_id"\s*:')
_MEDIA = re.compile(r"\.(?:mp4|m4v|mov|mkv|webm|avi|mpe?g|ogv|ogg|wav|mp3)(?:$|[?&#])", re.I)
_UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # begins the names of uploaded files


class _Range(LooseRecord):
    start: float
    end: float


class _Timeline(LooseRecord):
    """Frames, counted from 1; the last one belongs to the step."""

    ranges: tuple[_Range, ...]
    timelinelabels: tuple[str, ...] = ()


class _Span(LooseRecord):
    """Seconds."""

    start: float
    end: float
    labels: tuple[str, ...] = ()


class _Result(LooseRecord):
    type: str = ""
    from_name: str = ""
    value: dict[str, Any] = Field(default_factory=dict)


class _Annotation(LooseRecord):
    result: tuple[_Result, ...] = ()
    was_cancelled: bool = False
    ground_truth: bool = False
    updated_at: str = ""


class _Task(LooseRecord):
    id: int | str = ""
    data: dict[str, Any]
    annotations: tuple[_Annotation, ...] = ()


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the labels of each task's best annotation: the ground truth, or else the newest."""
    for number, task in enumerate(_tasks(document), 1):
        where = f"task {task.id or number}"
        done = [each for each in task.annotations if not each.was_cancelled]
        if not done:
            document.left_out["tasks without an annotation"] += 1
            continue
        if len(done) > 1:
            document.left_out["older annotations of a task"] += len(done) - 1
        best = max(done, key=lambda each: (each.ground_truth, each.updated_at))
        video = _video(document, task.data, where)
        task_name, split = (
            text if isinstance(text := task.data.get(key), str) else "" for key in ("task", "split")
        )
        for count, result in enumerate(best.result, 1):
            at = f"{where}, region {count}"
            place = document.place(at)
            for start, end, label in _spans(document, video, task.data.get("fps"), result, at):
                yield StepRow(
                    video, label, start, end, place, task_name, split, tier=result.from_name
                )


def _tasks(document: Document) -> list[_Task]:
    """Tasks of any export, each with all its annotations."""
    if document.text.startswith(_CSV):
        items: Any = [
            {name: json.loads(cell) if cell[:2] == "[{" else cell for name, cell in row.items()}
            for row in csv.DictReader(io.StringIO(document.text), restval="")
        ]
    else:
        items = document.json()
    found: dict[Any, _Task] = {}
    for number, item in enumerate(items if isinstance(items, list) else [items], 1):
        task = document.record(_Task, _with_annotations(item), f"task {number}")
        before = found.get(task.id or f"{number}.")
        if before is not None:
            task = task.model_copy(update={"annotations": before.annotations + task.annotations})
        found[task.id or f"{number}."] = task
    return list(found.values())


def _with_annotations(item: Any) -> Any:
    """A task of an export, as in the export JSON."""
    if not isinstance(item, dict) or "annotations" in item:
        return item
    if isinstance(item.get("task"), dict):  # an annotation, as target storages hold it
        return {**item["task"], "annotations": [item]}
    results = [
        {"type": kind, "from_name": name, "value": value}
        for name, values in item.items()
        if isinstance(values, list)
        for value in values
        for kind in ("timelinelabels", "labels")
        if isinstance(value, dict) and kind in value
    ]
    annotation = {"result": results, "updated_at": item.get("updated_at", "")}
    return {"id": item.get("id", ""), "data": item, "annotations": [annotation]}


def _spans(
    document: Document, video: str, fps: object, result: _Result, where: str
) -> Iterator[tuple[float, float, str]]:
    """Start and end in seconds, and label, of each step of a region."""
    value = result.value
    if result.type == "timelinelabels":
        frames = document.record(_Timeline, value, where)
        rate = document.rate(video, fps)
        for span in frames.ranges:
            for label in frames.timelinelabels or ("",):
                yield (span.start - 1) / rate, span.end / rate, label
    elif result.type == "labels" and "text" not in value:
        seconds = document.record(_Span, value, where)
        for label in seconds.labels or ("",):
            yield seconds.start, seconds.end, label
    elif result.type == "videorectangle":
        document.left_out["boxes of tracked objects, which have no steps"] += 1


def _video(document: Document, data: dict[str, Any], where: str) -> str:
    """Name of a task's video: the entry `video`, or else the first that names a media file."""
    texts = [data.get("video"), *data.values()]
    for text in texts:
        if isinstance(text, str) and _MEDIA.search(text):
            name = video_name(text)
            return _UPLOADED.sub("", name) if "/upload/" in text else name
    problem = "its data name no video. Put the address of the video into the entry 'video'"
    raise document.wrong(f"{problem}.", where)


def _recognises(document: Document) -> bool:
    text = document.head
    if text.lstrip()[:1] not in ("[", "{"):
        return text.startswith(_CSV)
    whole = _TASKS.search(text) is not None and '"data"' in text
    return whole or bool(_MIN.search(text) or _STORED.search(text))


FORMAT = Format(
    name="Label Studio", recognises=_recognises, read=_read, step="region", tier="control tag"
)
