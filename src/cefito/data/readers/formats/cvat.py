"""CVAT's "CVAT for images 1.1", XML: tags of single frames, whose runs are steps.

Tracks and boxes show where an object is. They have no intervals of steps and are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from cefito.data.readers.formats.document import Document, Format, StepRow, video_name

__all__ = ["FORMAT"]

_ROOT = re.compile(r"<annotations>\s*<(?:version|meta)>")
_FRAME = re.compile(r"frame_(\d+)$")
_STEP = re.compile(r"step\s*=\s*(\d+)")
_SHAPES = ("box", "polygon", "polyline", "points", "cuboid", "mask", "skeleton", "ellipse")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield each run of consecutive frames with a tag."""
    root = document.xml()
    tasks = {task.findtext("id", ""): task for task in root.iterfind("meta//task")}
    shapes = sum(len(image.findall(kind)) for image in root.iter("image") for kind in _SHAPES)
    for what, count in (("tracks", len(root.findall("track"))), ("boxes and shapes", shapes)):
        if count:
            document.left_out[f"{what} of objects, which have no intervals of steps"] += count
    frames: dict[tuple[str, str], set[int]] = defaultdict(set)
    for image in root.iter("image"):
        number = _FRAME.search(image.get("name", ""))
        frame = int(number[1] if number else image.attrib["id"])
        for tag in image.findall("tag"):
            frames[image.get("task_id", ""), tag.attrib["label"]].add(frame)
    for (task, label), tagged in frames.items():
        about = tasks.get(task) if task else next(iter(tasks.values()), None)
        video = _video(document, root, about, single=not task)
        step = _STEP.search("" if about is None else about.findtext("frame_filter") or "")
        every = int(step[1]) if step else 1
        rate = document.rate(video)
        for first, last in _runs(sorted(tagged), every):
            place = document.place(f"frames {first} to {last} with the tag '{label}'")
            yield StepRow(video, label, first / rate, (last + every) / rate, place)


def _runs(frames: list[int], every: int) -> Iterator[tuple[int, int]]:
    """First and last frame of each run without a gap."""
    first = frames[0]
    for before, frame in zip(frames, [*frames[1:], None], strict=True):
        if frame is None or frame > before + every:
            yield first, before
            first = frame or 0


def _video(document: Document, root: Element, task: Element | None, *, single: bool) -> str:
    """Name of a task's video: its source, or else the name of the task."""
    source = root.findtext("meta/source") or "" if single else ""
    if task is not None:
        source = source or task.findtext("source") or task.findtext("name") or ""
    return video_name(source) or document.video


FORMAT = Format(
    name="CVAT",
    recognises=lambda document: bool(_ROOT.search(document.head[:4096])),
    read=_read,
    step="run of tagged frames",
)
