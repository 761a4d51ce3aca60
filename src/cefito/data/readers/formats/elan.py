"""ELAN's annotation documents, .eaf: XML with tiers of annotations between time slots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from cefito.data.readers.formats.document import Document, Format, StepRow, video_name

__all__ = ["FORMAT"]

_ROOT = re.compile(r"<ANNOTATION_DOCUMENT\b")


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the annotations of all tiers; those that refer to others have the times of these."""
    root = document.xml()
    video, origin = _media(document, root)
    slots = {slot.attrib["TIME_SLOT_ID"]: slot.get("TIME_VALUE") for slot in root.iter("TIME_SLOT")}
    found = {
        each.attrib["ANNOTATION_ID"]: each
        for kind in ("ALIGNABLE_ANNOTATION", "REF_ANNOTATION")
        for each in root.iter(kind)
    }
    for tier in root.iter("TIER"):
        name = tier.attrib["TIER_ID"]
        for each in tier.findall("ANNOTATION/*"):
            place = f"annotation {each.attrib['ANNOTATION_ID']} of tier '{name}'"
            aligned = each
            for _ in range(len(found)):
                if "ANNOTATION_REF" not in aligned.attrib:
                    break
                aligned = found[aligned.attrib["ANNOTATION_REF"]]
            times = [slots[aligned.attrib[f"TIME_SLOT_REF{number}"]] for number in (1, 2)]
            start, end = (None if time is None else (int(time) + origin) / 1000 for time in times)
            if start is None or end is None:
                raise document.wrong("has no times of its own. Set its borders in ELAN.", place)
            label = each.findtext("ANNOTATION_VALUE") or ""
            yield StepRow(video, label, start, end, document.place(place), tier=name)


def _media(document: Document, root: Element) -> tuple[str, int]:
    """Name of the video, and the milliseconds of it at which annotations count from 0."""
    header = root.find("HEADER")
    if header is None:
        return document.video, 0
    units = header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise document.wrong(f"counts times in '{units}'. Save it with milliseconds.")
    media = header.find("MEDIA_DESCRIPTOR")
    if media is None:
        return document.video, 0
    location = media.get("MEDIA_URL") or media.get("RELATIVE_MEDIA_URL") or ""
    return video_name(location) or document.video, int(media.get("TIME_ORIGIN") or 0)


FORMAT = Format(
    name="ELAN",
    recognises=lambda document: bool(_ROOT.search(document.head[:4096])),
    read=_read,
    step="annotation",
    tier="tier",
)
