"""ANVIL's annotations, XML: tracks of elements with times and typed attributes."""

from __future__ import annotations

from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format
from cefito.data.readers.formats.films import StepRow
from cefito.times import parse_seconds


def _read(document: Document) -> Iterator[StepRow]:
    """Yield one step for each attribute of the elements that have times of their own.

    The tier is the track, or track/attribute if its elements have several attributes.
    """
    root = document.xml()
    source = root.find("head/video")
    location = "" if source is None else source.get("src", "")
    video = document.film(location) or document.video
    tracks = document.unique(((each.attrib["name"], each) for each in root.iter("track")), "tracks")
    for name, track in tracks.items():
        elements = track.findall("el")
        attributes = {part.attrib["name"] for each in elements for part in each.iter("attribute")}
        for each in elements:
            where = f"element {each.get('index', '?')} of track '{name}'"
            refers = track.get("ref")  # whose start and end are elements of another track
            if refers or "start" not in each.attrib or "end" not in each.attrib:
                why = "that refer to other tracks" if refers else "without start and end"
                document.left_out[f"elements {why}"] += 1
                continue
            start, end = (parse_seconds(each.attrib[key]) for key in ("start", "end"))
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
    recognises=lambda document: document.tags in (("annotation", "head"), ("annotation", "body")),
    read=_read,
    step="element",
    tier="track",
)
