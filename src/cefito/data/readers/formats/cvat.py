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
_Seen = tuple[str, str, str, str, str]
"""Task, folder of images if it has several, tier, label, and track."""


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
    for left_out, count in (
        ("tracks of objects", tracked * (not wanted)),
        ("boxes and shapes", shapes),
    ):
        if count:
            document.left_out[left_out] += count
    if tracked:
        document.remedy = (
            "Export tags as CVAT for images 1.1, or choose the tier 'tracks', to take each track "
            "for a step."
        )
    frames: dict[_Seen, dict[int, int]] = defaultdict(dict)  # first frames, with the frame after
    for what, first, after in _seen(root, tasks, whole, tracks=wanted):
        frames[what][first] = max(after, frames[what].get(first, 0))
    untagged = tasks.keys() - {task for task, *_ in frames}
    if len(tasks) > 1 and untagged:
        document.left_out["tasks without a tagged frame"] += len(untagged)
    for (task, folder, tier, label, _), spans in frames.items():
        about = tasks.get(task, whole)
        video = document.film(folder) or _film(document, root, about, single=not task)
        rate = document.rate(video)
        coding = f"task {task}" if task else ""
        for first, after in _runs(spans):
            place = document.place(f"frames {first} to {after - 1} with '{label}' ({tier})")
            start, end = first / rate, after / rate
            yield StepRow(video, label, start, end, place, tier=tier, coding=coding)


def _seen(
    root: Element, tasks: dict[str, Element], whole: Element | None, *, tracks: bool
) -> Iterator[tuple[_Seen, int, int]]:
    """All that is seen in one or more frames, with the first frame and the frame after."""
    images = [
        (image.get("task_id", ""), *image.get("name", "").rpartition("/"), image)
        for image in root.iter("image")
    ]
    folders: dict[str, dict[str, int]] = defaultdict(dict)  # each with its first image, by task
    for task, folder, _, _, image in images:
        folders[task].setdefault(folder, whole_number(image.attrib["id"]))
    for task, folder, _, name, image in images:
        begin, every, _ = _frames(tasks.get(task, whole))
        if several := len(folders[task]) > 1:  # each is a film, whose frames count from 0
            begin = -folders[task][folder] * every
        number = _FRAME.search(name)
        counted = whole_number(number[1] if number else image.attrib["id"])
        frame = counted if number else begin + counted * every
        for tag in image.findall("tag"):
            for tier, label in _labels(tag, tag.attrib["label"], "tags", tag.attrib["label"]):
                yield (task, folder * several, tier, label, ""), frame, frame + every
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
                yield (task, "", tier, label, track.get("id", "")), frame, after


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
