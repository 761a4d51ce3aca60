"""CVAT's XML: "CVAT for images 1.1", where runs of tagged frames are steps, and tracks.

Tracks and boxes show where an object is. Tracks are steps if that is asked for (tier "tracks").
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from cefito.data.readers.formats.document import Document, Format, whole_number
from cefito.data.readers.formats.films import StepRow

_FRAME = re.compile(r"frame_([0-9]+)(?:\.\w+)?$")
_STEP = re.compile(r"step\s*=\s*([0-9]+)")
_TRACKS = "tracks"
_SHAPES = ("box", "polygon", "polyline", "points", "cuboid", "mask", "skeleton", "ellipse")
_Frames = dict[tuple[str, str, str], dict[int, int]]
"""First frames of what is seen, with the frame after, by task, tier and label."""


def _read(document: Document) -> Iterator[StepRow]:
    """Yield each run of frames with a tag, a value of its attribute, or a track."""
    root = document.xml()
    whole = next(
        (each for kind in ("task", "job") for each in root.iterfind(f"meta//{kind}")), None
    )
    tasks = document.unique(
        ((each.findtext("id", ""), each) for each in root.iterfind("meta//task")), "tasks"
    )
    shapes = sum(len(image.findall(kind)) for image in root.iter("image") for kind in _SHAPES)
    tracked = len(root.findall("track"))
    wanted = (document.choices.tier or "").partition("/")[0] == _TRACKS
    for what, count in (
        ("tracks of objects", tracked * (not wanted)),
        ("boxes and shapes", shapes),
    ):
        if count:
            document.left_out[what] += count
    if tracked:
        document.remedy = (
            "Export tags as CVAT for images 1.1, or choose the tier 'tracks', to take each track "
            "for a step."
        )
    frames: _Frames = defaultdict(dict)
    for task, tier, label, first, after in _seen(root, tasks, whole, tracks=wanted):
        spans = frames[task, tier, label]
        spans[first] = max(after, spans.get(first, 0))
    tagged = {task for task, *_ in frames}
    for task, about in tasks.items() if len(tasks) > 1 else ():
        if task not in tagged:
            name = about.findtext("name") or task
            document.without.setdefault("tasks without a tagged frame", []).append(name)
    for (task, tier, label), spans in frames.items():
        video = _film(document, root, tasks.get(task, whole), single=not task)
        rate = document.rate(video)
        coding = f"task {task}" if task else ""
        for first, after in _runs(spans):
            place = document.place(f"frames {first} to {after - 1} with '{label}' ({tier})")
            start, end = first / rate, after / rate
            yield StepRow(video, label, start, end, place, tier=tier, coding=coding)


def _seen(
    root: Element, tasks: dict[str, Element], whole: Element | None, *, tracks: bool
) -> Iterator[tuple[str, str, str, int, int]]:
    """Task, tier, label, first frame and frame after of all that is seen in one or more frames."""
    for image in root.iter("image"):
        task = image.get("task_id", "")
        begin, every, _ = _frames(tasks.get(task, whole))
        number = _FRAME.search(image.get("name", ""))
        counted = whole_number(number[1] if number else image.attrib["id"])
        frame = counted if number else begin + counted * every
        for tag in image.findall("tag"):
            for tier, label in _labels(tag, tag.attrib["label"], "tags", tag.attrib["label"]):
                yield task, tier, label, frame, frame + every
    for track in root.findall("track") if tracks else ():
        task, name = track.get("task_id", ""), track.attrib["label"]
        _, every, last = _frames(tasks.get(task, whole))
        shapes = {
            whole_number(each.attrib["frame"]): each for each in track if "frame" in each.attrib
        }
        listed = sorted(shapes)
        for frame, following in zip(listed, [*listed[1:], None], strict=True):
            if shapes[frame].get("outside") == "1":
                continue
            after = max(frame, last) + every if following is None else following
            for tier, label in _labels(shapes[frame], name, _TRACKS, f"{_TRACKS}/{name}"):
                yield task, tier, label, frame, after


def _labels(part: Element, name: str, tier: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The label in its tier, and the values of attributes in theirs."""
    yield tier, name
    for each in part.findall("attribute"):
        yield f"{prefix}/{each.attrib['name']}", each.text or ""


def _frames(about: Element | None) -> tuple[int, int, int]:
    """First frame of a task or job, frames from one to the next, and the last frame."""
    if about is None:
        return 0, 1, 0
    step = _STEP.search(about.findtext("frame_filter") or "")
    first, last = (whole_number(about.findtext(f"{end}_frame") or "0") for end in ("start", "stop"))
    return first, max(whole_number(step[1]), 1) if step else 1, last


def _runs(spans: dict[int, int]) -> Iterable[tuple[int, int]]:
    """First frame of each run without a gap, and the frame after it."""
    runs: list[list[int]] = []
    for first, after in sorted(spans.items()):
        if runs and first <= runs[-1][1]:
            runs[-1][1] = max(after, runs[-1][1])
        else:
            runs.append([first, after])
    return [(first, after) for first, after in runs]


def _film(document: Document, root: Element, about: Element | None, *, single: bool) -> str:
    """Address of a task's video: its source, or else the name of the task."""
    source = root.findtext("meta/source") or "" if single else ""
    if about is not None:
        source = source or about.findtext("source") or about.findtext("name") or ""
    return document.film(source) or document.video


FORMAT = Format(
    name="CVAT",
    recognises=lambda document: (
        document.tags in (("annotations", "version"), ("annotations", "meta"))
    ),
    read=_read,
    step="run of frames",
    tier="tier",
)
