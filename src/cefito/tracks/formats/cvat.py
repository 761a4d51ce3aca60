"""CVAT's XML "CVAT for images 1.1", where runs of tagged frames are steps.

Tracks and boxes show where an object is, and are no steps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from xml.etree.ElementTree import Element

from cefito.tracks.document import Document, Format, StepRow, whole_number

_FRAME = re.compile(r"frame_([0-9]+)(?:\.\w+)?$")
_STEP = re.compile(r"step\s*=\s*([0-9]+)")
_SHAPES = ("box", "polygon", "polyline", "points", "cuboid", "mask", "skeleton", "ellipse")
_MOST = 0.9  # share of a task's frames from which on untagged ones are listed as well
_Seen = tuple[str, str, str, str]
"""Task, folder of images if it has several, tier, and label."""


def _read(document: Document) -> Iterator[StepRow]:
    """Yield each run of frames with a tag, or with a value of its attribute."""
    root = document.xml()
    whole = next(
        (element for kind in ("task", "job") for element in root.iterfind(f"meta//{kind}")), None
    )
    tasks = document.unique(
        ((element.findtext("id", ""), element) for element in root.iterfind("meta//task")), "tasks"
    )
    shapes = sum(len(image.findall(kind)) for image in root.iter("image") for kind in _SHAPES)
    tracked = len(root.findall("track"))
    for left_out, count in (("tracks of objects", tracked), ("boxes and shapes", shapes)):
        if count:
            document.left_out[left_out] += count
    if tracked:
        document.remedy = "Tag the frames of each step and export CVAT for images 1.1."
    frames: dict[_Seen, dict[int, int]] = defaultdict(dict)  # first frames, with the frame after
    for what, first, after in _seen(root, tasks, whole):
        frames[what][first] = after
    following = _following(frames, tasks, whole)
    untagged = tasks.keys() - {task for task, *_ in frames}
    if len(tasks) > 1 and untagged:
        document.left_out["tasks without a tagged frame"] += len(untagged)
    for (task, folder, tier, label), spans in frames.items():
        about = tasks.get(task, whole)
        video = document.film(folder) or _film(document, root, about, single=not task)
        rate = document.rate(video)
        coding = f"task {task}" if task else ""
        runs, bridged = _runs(spans, following.get((task, folder), {}))
        if bridged:
            document.notes["gaps of deleted frames, which were bridged"] += bridged
        for first, after in runs:
            place = document.place(f"frames {first} to {after - 1} with '{label}' ({tier})")
            start, end = first / rate, after / rate
            yield StepRow(video, label, start, end, place, tier=tier, coding=coding)


def _seen(
    root: Element, tasks: dict[str, Element], whole: Element | None
) -> Iterator[tuple[_Seen, int, int]]:
    """All images, and all tags, each with its frame and the frame after."""
    images = [
        (image.get("task_id", ""), *image.get("name", "").rpartition("/"), image)
        for image in root.iter("image")
    ]
    folders: dict[str, dict[str, int]] = defaultdict(dict)  # each with its first image, by task
    for task, folder, _, _, image in images:
        folders[task].setdefault(folder, whole_number(image.attrib["id"]))
    for task, folder, _, name, image in images:
        begin, stride = _frames(tasks.get(task, whole))
        if several := len(folders[task]) > 1:  # each is a film, whose frames count from 0
            begin = -folders[task][folder] * stride
        number = _FRAME.search(name)
        counted = whole_number(number[1] if number else image.attrib["id"])
        frame = counted if number else begin + counted * stride
        place = task, folder * several
        yield (*place, "", ""), frame, frame + stride
        for tag in image.findall("tag"):
            name = tag.attrib["label"]
            yield (*place, "tags", name), frame, frame + stride
            for attribute in tag.findall("attribute"):
                tier = f"{name}/{attribute.attrib['name']}"
                yield (*place, tier, attribute.text or ""), frame, frame + stride


def _frames(about: Element | None) -> tuple[int, int]:
    """First frame of a task or job, and frames from one to the next."""
    if about is None:
        return 0, 1
    step = _STEP.search(about.findtext("frame_filter") or "")
    first = whole_number(about.findtext("start_frame") or "0")
    return first, max(whole_number(step[1]), 1) if step else 1


def _following(
    frames: dict[_Seen, dict[int, int]], tasks: dict[str, Element], whole: Element | None
) -> dict[tuple[str, str], dict[int, int]]:
    """The frame that is listed after each, by task and folder, which are taken out of `frames`.

    Deleted frames are not listed; without others that have no tag, or with most frames missing,
    untagged frames are not listed either, and nothing is known of what follows.
    """
    listed = {what[:2]: [*frames.pop(what)] for what in [what for what in frames if not what[2]]}
    following = {}
    for place, images in listed.items():
        about = tasks.get(place[0], whole)
        size = whole_number((about is not None and about.findtext("size")) or "0")
        tagged = {frame for what, spans in frames.items() if what[:2] == place for frame in spans}
        count = sum(len(numbers) for (task, _), numbers in listed.items() if task == place[0])
        if not tagged.issuperset(images) or 0 < _MOST * size <= count:
            following[place] = dict(pairwise(sorted(images)))
    return following


def _runs(spans: dict[int, int], following: dict[int, int]) -> tuple[list[tuple[int, int]], int]:
    """First frame of each run without a gap, and the frame after it; and how many were bridged."""
    runs: list[tuple[int, int]] = []
    before, bridged = -1, 0
    for first, after in sorted(spans.items()):
        touching = bool(runs) and first <= runs[-1][1]
        if runs and (touching or following.get(before) == first):
            runs[-1] = runs[-1][0], max(after, runs[-1][1])
            bridged += not touching
        else:
            runs.append((first, after))
        before = first
    return runs, bridged


def _film(document: Document, root: Element, about: Element | None, *, single: bool) -> str:
    """Address of a task's video: its source, or else the name of the task."""
    source = root.findtext("meta/source") or "" if single else ""
    if about is not None:
        source = source or about.findtext("source") or about.findtext("name") or ""
    return document.film(source) or document.video


FORMATS = (
    Format(
        name="CVAT",
        endings=(".xml",),
        tags=(("annotations", "version"), ("annotations", "meta")),
        read=_read,
        step="run of frames",
        tier="tier",
    ),
)
