"""FiftyOne's temporal detections: labels.json of its export, or samples.json of a data set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from cefito.markup import Seconds
from cefito.tracks.document import Document, Format, LooseRecord, StepRow
from cefito.tracks.track import Track


class _Detection(LooseRecord):
    label: str | int
    support: tuple[int, int] | None = None  # first and last frame, counted from 1
    timestamps: tuple[Seconds, Seconds] | None = None


class _Export(LooseRecord):
    """Detections by the name of a video, whose labels are numbers if there are classes."""

    classes: tuple[str, ...] | None = None
    labels: dict[str, tuple[_Detection, ...] | None]


class _Metadata(LooseRecord):
    frame_rate: float | None = None


class _Sample(LooseRecord):
    filepath: str
    tags: tuple[str, ...] = ()
    metadata: _Metadata | None = None


_TAGS = {"train": "train", "val": "val", "validation": "val", "test": "test"}


def _read_export(document: Document) -> Iterator[StepRow]:
    """Yield the detections of all videos."""
    export = document.record(_Export, document.json())
    document.unique(((name, at) for at, name in enumerate(export.classes or ())), "classes")
    for name, detections in export.labels.items():
        if not detections:
            document.left_out["videos without a detection"] += 1
        video = document.film(name) or document.video
        for number, detection in enumerate(detections or (), 1):
            label, where = detection.label, f"video '{name}', detection {number}"
            if isinstance(label, int) and not 0 <= label < len(export.classes or ()):
                raise document.wrong(f"has the number {label} of no class. Export it again.", where)
            label = export.classes[label] if export.classes and isinstance(label, int) else label
            times = _times(document, detection, video, None, where)
            yield StepRow(video, str(label), *times, document.place(where), coding=name)


def _read_samples(document: Document) -> Iterator[StepRow]:
    """Yield the temporal detections of all samples; each field of them is a tier."""
    samples: list[dict[str, Any]] = document.json()["samples"]
    for number, value in enumerate(samples, 1):
        where = f"sample {number}"
        sample = document.record(_Sample, value, where)
        video, written = document.film(sample.filepath) or document.video, sample.metadata
        splits = {_TAGS[tag] for tag in sample.tags if tag in _TAGS}
        split = splits.pop() if len(splits) == 1 else ""
        rate = None if written is None else written.frame_rate
        for field, labels in value.items():
            kind = labels.get("_cls") if isinstance(labels, dict) else None
            if kind not in ("TemporalDetections", "TemporalDetection"):
                continue
            listed = labels["detections"] if kind == "TemporalDetections" else [labels]
            for entry in listed:
                detection = document.record(_Detection, entry, f"{where}, field '{field}'")
                times = _times(document, detection, video, rate, where)
                place, label = document.place(where), str(detection.label)
                facts: dict[str, Any] = {"split": split, "tier": field, "coding": where}
                yield StepRow(video, label, *times, place, **facts)


def _times(
    document: Document, detection: _Detection, video: str, rate: float | None, where: str
) -> tuple[float, float]:
    """Start and end of a detection in seconds; its last frame belongs to it."""
    if detection.timestamps is not None:
        return detection.timestamps
    if detection.support is None:
        raise document.wrong("has neither support nor timestamps. Export it again.", where)
    frames = document.rate(video, rate, where=where)
    first, last = detection.support
    return (first - 1) / frames, last / frames


def _write(videos: Sequence[Track]) -> str:
    """Return labels.json of all videos, with times in seconds."""
    names = dict.fromkeys(step.name for video in videos for step in video.steps)
    numbers = {name: number for number, name in enumerate(names)}
    labels = {
        video.video: [
            {"label": numbers[step.name], "timestamps": [step.start, step.end]}
            | ({"confidence": round(step.probability, 4)} if video.recognised else {})
            for step in video.steps
        ]
        for video in videos
    }
    value = {"classes": [*names], "labels": labels}
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


FORMATS = (
    Format(
        name="FiftyOne",
        endings=(".json",),
        marks=(r"\A\s*\{", r'"labels"\s*:\s*\{', r'"(?:timestamps|support)"\s*:\s*\['),
        read=_read_export,
        step="temporal detection",
        key="fiftyone",
        write=_write,
    ),
    Format(
        name="samples of FiftyOne",
        endings=(".json",),
        marks=(r'"samples"\s*:\s*\[', r'"TemporalDetections?"', '"support"'),
        read=_read_samples,
        step="temporal detection",
        tier="field",
    ),
)
