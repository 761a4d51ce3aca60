"""ActivityNet's JSON, also of THUMOS, YouCook2 and COIN: {"database": {VIDEO: annotations}}."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import AliasChoices, Field

from cefito.markup import Seconds
from cefito.tracks.document import Document, Format, LooseRecord, StepRow
from cefito.tracks.track import Track

_BEYOND = 1.5  # times a video's length; what ends later is not in seconds
_SPLITS = {"training": "train", "validation": "val", "testing": "test"}


class _Segment(LooseRecord):
    segment: tuple[Seconds, Seconds]
    label: str = Field("", validation_alias=AliasChoices("label", "sentence"))


class _Video(LooseRecord):
    subset: str = ""
    duration: Seconds | None = None
    task: str = Field("", validation_alias=AliasChoices("class", "task"))
    annotations: tuple[_Segment, ...] = Field(
        (), validation_alias=AliasChoices("annotations", "annotation")
    )


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the segments; without test videos, those of validation are test, as in ActivityNet."""
    database: dict[str, Any] = document.json()["database"]
    videos = {
        name: document.record(_Video, value, f"video '{name}'") for name, value in database.items()
    }
    splits = {
        name: _SPLITS.get(video.subset.casefold(), video.subset) for name, video in videos.items()
    }
    used = {splits[name] for name, video in videos.items() if video.annotations}
    if "val" in used and "test" not in used:
        document.notes["subset validation, read as test, since no subset testing is annotated"] += 1
    for name, video in videos.items():
        if not video.annotations:
            document.left_out["videos without a segment"] += 1
        split = "test" if splits[name] == "val" and "test" not in used else splits[name]
        for number, segment in enumerate(video.annotations, 1):
            if video.duration and segment.segment[1] > _BEYOND * video.duration:
                problem = f"ends at {segment.segment[1]:g} of {video.duration:g} s. Give seconds"
                raise document.wrong(f"{problem}.", f"video '{name}', segment {number}")
            place, film = document.place(f"video '{name}', segment {number}"), document.film(name)
            yield StepRow(film, segment.label, *segment.segment, place, video.task, split)


def _write(videos: Sequence[Track]) -> str:
    """Return the segments of all videos; the task is the entry `class`."""
    subsets = {split: subset for subset, split in _SPLITS.items()}
    database = {
        video.video: {
            **({"subset": subsets[video.split]} if video.split else {}),
            "duration": video.seconds,
            "class": video.task,
            "annotations": [
                {"segment": [step.start, step.end], "label": step.name}
                | ({"score": round(step.probability, 4)} if video.recognised else {})
                for step in video.steps
            ],
        }
        for video in videos
    }
    value = {"version": "cefito", "database": database}
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


FORMATS = (
    Format(
        name="ActivityNet",
        endings=(".json",),
        marks=(r'"database"\s*:\s*\{', r'"segment"\s*:'),
        read=_read,
        step="segment",
        key="activitynet",
        write=_write,
    ),
)
