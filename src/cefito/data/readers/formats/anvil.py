"""ANVIL's annotations, XML: tracks of elements with times and typed attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format, StepRow, video_name

__all__ = ["FORMAT"]

_ROOT = re.compile(r"<annotation(?:\s[^>]*)?>\s*(?:<!--.*?-->\s*)*<(?:head|body)\b", re.DOTALL)


def _read(document: Document) -> Iterator[StepRow]:
    """Yield one step for each attribute of the elements that have times of their own.

    The tier is the track, or track/attribute if its elements have several attributes.
    """
    root = document.xml()
    source = root.find("head/video")
    location = "" if source is None else source.get("src", "")
    video = video_name(location) or document.video
    for track in root.iter("track"):
        name = track.attrib["name"]
        elements = track.findall("el")
        attributes = {part.attrib["name"] for each in elements for part in each.iter("attribute")}
        for each in elements:
            where = f"element {each.get('index', '?')} of track '{name}'"
            if "start" not in each.attrib or "end" not in each.attrib:
                document.left_out["elements of tracks that refer to other tracks"] += 1
                continue
            start, end = float(each.attrib["start"]), float(each.attrib["end"])
            labels = {
                part.attrib["name"]: part.text or part.get("value") or ""
                for part in each.iter("attribute")
            }
            for attribute in labels or ("",):
                tier = f"{name}/{attribute}" if len(attributes) > 1 else name
                label = labels.get(attribute, "")
                yield StepRow(video, label, start, end, document.place(where), tier=tier)


FORMAT = Format(
    name="ANVIL",
    recognises=lambda document: bool(_ROOT.search(document.head[:4096])),
    read=_read,
    step="element",
    tier="track",
)
