"""Recognised steps as text: tables, ELAN, Label Studio, VIA, WebVTT and JSON lines."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from cefito.data.readers.formats.label_studio import RECOGNISED
from cefito.markup import in_csv, plain
from cefito.tracks.track import TimedStep, Track

_FRAME_RATE = 24  # of Label Studio's Video tag, unless it is changed
_SCHEMA = "http://www.mimer.mpi.nl/ELAN/EAFv3.0"  # no place to load from; only a name


class Writer(NamedTuple):
    """A format of recognised steps."""

    ending: str
    write: Callable[[Sequence[Track]], str]
    single: bool = False  # whether a file holds one video alone


def steps_table(videos: Sequence[Track]) -> str:
    """Return a table, CSV, that `cefito data prepare custom` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["video", "task", "step", "start", "end", "probability"])
    for video in videos:
        for step in video.steps:
            times = (f"{step.start:.3f}", f"{step.end:.3f}", f"{step.probability:.4f}")
            writer.writerow([*map(in_csv, (video.video, video.task, step.name)), *times])
    return text.getvalue()


def json_lines(videos: Sequence[Track]) -> str:
    """Return one JSON object a video, a line each."""
    return "".join(json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in videos)


def label_studio(videos: Sequence[Track]) -> str:
    """Return tasks with predictions of the control tag `steps` of a Video tag `video`.

    Frames are counted at the tag's own rate, 24 a second, whatever that of the film is.
    """
    tasks = []
    for video in videos:
        regions = [
            {
                "id": f"step{number}",
                "type": "timelinelabels",
                "from_name": "steps",
                "to_name": "video",
                "score": round(step.probability, 4),
                "value": {"ranges": [_frames(step)], "timelinelabels": [step.name]},
            }
            for number, step in enumerate(video.steps, 1)
        ]
        data = {"video": video.media, "task": video.task, "frameRate": _FRAME_RATE}
        mean = sum(step.probability for step in video.steps) / max(len(video.steps), 1)
        made = {"model_version": RECOGNISED, "score": round(mean, 4), "result": regions}
        tasks.append({"data": data, "annotations": [], "predictions": [made]})
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def _frames(step: TimedStep) -> dict[str, int]:
    """Return the first and the last frame of a step, counted from 1."""
    first = round(step.start * _FRAME_RATE) + 1
    return {"start": first, "end": max(first, round(step.end * _FRAME_RATE))}


def web_vtt(videos: Sequence[Track]) -> str:
    """Return the steps of one video as cues; comments before them hold the probabilities."""
    (video,) = videos
    blocks = ["WEBVTT"]
    for step in video.steps:
        times = f"{_clock(step.start)} --> {_clock(step.end)}"
        name = html.escape(plain(step.name), quote=False)
        blocks += [f"NOTE probability {step.probability:.4f}", f"{times}\n{name}"]
    return "\n\n".join(blocks) + "\n"


def _clock(seconds: float) -> str:
    """Return a time as hours, minutes, seconds and milliseconds, as in 00:01:02.500."""
    rest, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{milliseconds:03d}"


def elan(videos: Sequence[Track]) -> str:
    """Return ELAN's document of one video, with the tier `steps`."""
    (video,) = videos
    root = ElementTree.Element(
        "ANNOTATION_DOCUMENT",
        {"AUTHOR": "cefito", "DATE": "1970-01-01T00:00:00+00:00", "FORMAT": "3.0"}
        | {"VERSION": "3.0", "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance"}
        | {"xsi:noNamespaceSchemaLocation": f"{_SCHEMA}.xsd"},
    )
    header = ElementTree.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    place = video.media if video.file is None else Path(video.file).resolve().as_uri()
    media = {"MEDIA_URL": plain(place), "MIME_TYPE": "video/mp4"}
    ElementTree.SubElement(header, "MEDIA_DESCRIPTOR", media)
    order = ElementTree.SubElement(root, "TIME_ORDER")
    tier = ElementTree.SubElement(root, "TIER", TIER_ID="steps", LINGUISTIC_TYPE_REF="step")
    for number, step in enumerate(video.steps, 1):
        slots = {}
        for side, time in enumerate((step.start, step.end), 1):
            slots[f"TIME_SLOT_REF{side}"] = slot = f"ts{2 * number - 2 + side}"
            at = {"TIME_SLOT_ID": slot, "TIME_VALUE": str(round(time * 1000))}
            ElementTree.SubElement(order, "TIME_SLOT", at)
        outer = ElementTree.SubElement(tier, "ANNOTATION")
        own = {"ANNOTATION_ID": f"a{number}", **slots}
        inner = ElementTree.SubElement(outer, "ALIGNABLE_ANNOTATION", own)
        ElementTree.SubElement(inner, "ANNOTATION_VALUE").text = plain(step.name)
    kind = {"LINGUISTIC_TYPE_ID": "step", "TIME_ALIGNABLE": "true", "GRAPHIC_REFERENCES": "false"}
    ElementTree.SubElement(root, "LINGUISTIC_TYPE", kind)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def via(videos: Sequence[Track]) -> str:
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
            key: {"fid": key, "fname": Path(own).name, "type": 4, "loc": 1, "src": own}
            for key, own in zip(numbers, media, strict=True)
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


WRITERS = {
    "csv": Writer(".csv", steps_table),
    "eaf": Writer(".eaf", elan, single=True),
    "via": Writer(".json", via),
    "labelstudio": Writer(".json", label_studio),
    "vtt": Writer(".vtt", web_vtt, single=True),
    "jsonl": Writer(".jsonl", json_lines),
}
"""Formats by name; of several with one ending, the last is meant by it."""
