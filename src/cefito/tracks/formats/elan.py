"""ELAN's annotation documents, .eaf: XML with tiers of annotations between time slots."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from cefito.markup import plain
from cefito.tracks.document import Document, Format, StepRow, whole_number
from cefito.tracks.track import Track

_SCHEMA = "http://www.mimer.mpi.nl/ELAN/EAFv3.0"  # no place to load from; only a name
_VIDEO = re.compile(r"\.(?:mp4|m4v|mov|mkv|webm|avi|mpe?g|mts|m2ts|wmv|ogv)$", re.I)
_UNKNOWN = "annotations between borders without times, or that refer to none or several"
_Span = tuple[float, float]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the annotations of all tiers; an annotation that refers to another has its times."""
    root = document.xml()
    video, origin = _media(document, root)
    tiers = document.unique(((tier.attrib["TIER_ID"], tier) for tier in root.iter("TIER")), "tiers")
    spans = _spans(document, root, tiers)
    for name, tier in tiers.items():
        for annotation in tier.findall("ANNOTATION/*"):
            if annotation not in spans:
                if document.choices.tier in (None, name):
                    document.left_out[_UNKNOWN] += 1
                continue
            start, end = ((time + origin) / 1000 for time in spans[annotation])
            label = annotation.findtext("ANNOTATION_VALUE") or ""
            place = document.place(
                f"annotation {annotation.attrib['ANNOTATION_ID']} of tier '{name}'"
            )
            yield StepRow(video, label, start, end, place, tier=name)


def _spans(document: Document, root: Element, tiers: dict[str, Element]) -> dict[Element, _Span]:
    """Start and end in milliseconds of each annotation with times, or that refers to one."""
    times = _times(document, root, tiers)
    spans: dict[Element, _Span] = {}
    named: dict[str, list[Element]] = defaultdict(list)  # scripts write one id for several
    for element in root.iter("ALIGNABLE_ANNOTATION"):
        start, end = (times[slot] for slot in _slots(element))
        named[element.attrib["ANNOTATION_ID"]].append(element)
        if start is not None and end is not None:
            spans[element] = start, end
    kinds = {element.get("LINGUISTIC_TYPE_ID"): element for element in root.iter("LINGUISTIC_TYPE")}
    waiting: dict[str, list[list[Element]]] = defaultdict(list)  # parts, by what they refer to
    for tier in tiers.values():
        kind = kinds.get(tier.get("LINGUISTIC_TYPE_REF"))
        whole = kind is not None and kind.get("CONSTRAINTS") == "Symbolic_Association"
        parts: dict[str, dict[str | None, list[Element]]] = defaultdict(lambda: defaultdict(list))
        for element in tier.iter("REF_ANNOTATION"):
            before = None if whole else element.get("PREVIOUS_ANNOTATION")
            parts[element.attrib["ANNOTATION_REF"]][before].append(element)
            named[element.attrib["ANNOTATION_ID"]].append(element)
        for parent, followers in parts.items():
            listed = _in_order(followers)
            waiting[parent] += [[annotation] for annotation in listed] if whole else [listed]
    ready = [
        number for number in waiting if [element in spans for element in named[number]] == [True]
    ]
    for parent in ready:
        start, end = spans[named[parent][0]]
        for listed in waiting[parent]:
            step = (end - start) / len(listed)
            for place, annotation in enumerate(listed):
                spans[annotation] = start + place * step, start + (place + 1) * step
                number = annotation.attrib["ANNOTATION_ID"]
                ready += [number] if number in waiting and len(named[number]) == 1 else []
    return spans


def _in_order(followers: dict[str | None, list[Element]]) -> list[Element]:
    """Annotations one after another, by the one before each."""
    listed = followers.pop(None, [])
    for annotation in listed:
        listed += followers.pop(annotation.attrib["ANNOTATION_ID"], [])
    return listed + [annotation for parts in followers.values() for annotation in parts]


def _slots(annotation: Element) -> tuple[str, str]:
    return annotation.attrib["TIME_SLOT_REF1"], annotation.attrib["TIME_SLOT_REF2"]


def _times(document: Document, root: Element, tiers: dict[str, Element]) -> dict[str, float | None]:
    """Milliseconds of each slot; borders without a time lie evenly between those around them."""
    slots = [
        (slot_element.attrib["TIME_SLOT_ID"], slot_element.get("TIME_VALUE"))
        for slot_element in root.iter("TIME_SLOT")
    ]
    times: dict[str, float | None] = {
        slot: None if value is None else float(whole_number(value))
        for slot, value in document.unique(slots, "time slots").items()
    }
    for name, tier in [*tiers.items()] * 2:  # a tier may come before the one that it divides
        following = dict(map(_slots, tier.iter("ALIGNABLE_ANNOTATION")))
        for first, after in list(following.items()):
            start, chain = times[first], [first, after]
            if start is None:
                continue
            while chain[-1] in following and times[chain[-1]] is None:
                chain.append(following.pop(chain[-1]))
            end = times[chain[-1]]
            if end is None or len(chain) == 2:
                continue
            for place, slot in enumerate(chain[1:-1], 1):
                times[slot] = start + (end - start) * place / (len(chain) - 1)
            if document.choices.tier in (None, name):
                between = "borders without a time lie evenly between those around them, as in ELAN"
                document.notes[f"{between} (tier '{name}')"] += len(chain) - 2
    return times


def _media(document: Document, root: Element) -> tuple[str, int]:
    """Address of the first video, and the milliseconds of it at which annotations count from 0."""
    header = root.find("HEADER")
    if header is None:
        return document.video, 0
    units = header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise document.wrong(f"counts times in '{units}'. Save it with milliseconds.")
    media = list(header.iter("MEDIA_DESCRIPTOR"))
    films = [
        medium
        for medium in media
        if medium.get("MIME_TYPE", "").startswith("video") or _VIDEO.search(_address(medium))
    ]
    if not media:
        return document.video, 0
    if len(films) > 1:
        document.left_out["further videos of the same time"] += len(films) - 1
    first = (films or media)[0]
    source = "" if films else first.get("EXTRACTED_FROM", "")
    video = document.film(source) or document.film(_address(first)) or document.video
    return video, whole_number(first.get("TIME_ORIGIN") or "0")


def _address(media: Element) -> str:
    return media.get("MEDIA_URL") or media.get("RELATIVE_MEDIA_URL") or ""


def _write(videos: Sequence[Track]) -> str:
    """Return ELAN's document of one video, with the tier `steps`, or that of the labels."""
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
    tier = ElementTree.SubElement(root, "TIER", TIER_ID=video.tier_name, LINGUISTIC_TYPE_REF="step")
    for number, step in enumerate(video.steps, 1):
        slots = {}
        for side, time in enumerate((step.start, step.end), 1):
            slots[f"TIME_SLOT_REF{side}"] = slot = f"ts{2 * number - 2 + side}"
            at = {"TIME_SLOT_ID": slot, "TIME_VALUE": str(round(time * 1000))}
            ElementTree.SubElement(order, "TIME_SLOT", at)
        outer = ElementTree.SubElement(tier, "ANNOTATION")
        attributes = {"ANNOTATION_ID": f"a{number}", **slots}
        inner = ElementTree.SubElement(outer, "ALIGNABLE_ANNOTATION", attributes)
        ElementTree.SubElement(inner, "ANNOTATION_VALUE").text = plain(step.name)
    kind = {"LINGUISTIC_TYPE_ID": "step", "TIME_ALIGNABLE": "true", "GRAPHIC_REFERENCES": "false"}
    ElementTree.SubElement(root, "LINGUISTIC_TYPE", kind)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


FORMATS = (
    Format(
        name="ELAN",
        endings=(".eaf",),
        tags=(("ANNOTATION_DOCUMENT",),),
        read=_read,
        step="annotation",
        tier="tier",
        key="eaf",
        write=_write,
        single=True,
    ),
)
