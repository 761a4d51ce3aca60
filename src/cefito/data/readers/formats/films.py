"""Steps and their films: the addresses that tell films apart, and the shortest names for them."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, unquote, urlsplit

from cefito.data.annotations import nfc
from cefito.errors import DataError
from cefito.markup import counted

_ENDING = re.compile(r"(?<=[^/])\.(?=\w*[A-Za-z])\w{2,5}$")
_ROOTED = re.compile(r"[/\\]|[A-Za-z]:[/\\]|\w[\w+.-]*://")
_UPLOADED = re.compile(r"((?:^|/)upload/(?:\d+/)?[0-9a-f]{8})-(?=[^/]+$)")  # by Label Studio
_DEEPEST = 16  # folders in a name
_SHOWN = 5  # films in a message


@dataclass(frozen=True)
class StepRow:
    """One annotated step."""

    video: str  # name of a table's, address of another film until all files are read
    step: str  # name of the action; empty if the annotation has no label
    start: float  # seconds
    end: float | None  # seconds; None if it is the end of the video
    place: str  # for messages
    task: str = ""  # empty if the file holds none
    split: str = ""
    tier: str = ""  # name of the tier, track or attribute that holds it
    coding: str = ""  # what annotates the whole film, if the file has several
    origin: str = ""  # the file, for messages
    errors: tuple[str, ...] = ()  # kinds of what was done wrongly


def film_address(location: str, folder: str = "") -> str:
    """Return the path of a film without scheme, query and ending; empty if there is none.

    "rec/P01/front" for "s3://rec/P01/front.mp4". A path that begins nowhere begins in `folder`.
    """
    text = location.strip()
    rooted = _ROOTED.match(text)
    if text[:7].lower() == "file://":  # whose names are not always quoted
        text = unquote(text[7:])
    elif "://" in text or text.startswith("/data/"):  # an address, also one of Label Studio
        try:
            parts = urlsplit(text)
        except ValueError:
            return ""
        local = parse_qs(parts.query).get("d") if "/local-files/" in parts.path else None
        text = f"{parts.netloc}/{unquote((local or [parts.path])[0])}"
    text = text.replace("\\", "/").rstrip("/")
    if not text.rpartition("/")[2].strip(". "):
        return ""
    path = posixpath.normpath(text if rooted else f"{folder}/{text}")
    kept = [part for each in path.split("/") if (part := each.rstrip(":")).strip(". ")]
    return nfc(_ENDING.sub("", _UPLOADED.sub(r"\1/", "/".join(kept))))


def named_films(rows: Iterable[StepRow]) -> tuple[list[StepRow], list[str]]:
    """Give films the shortest ends of their addresses that tell them apart; also return a note.

    Rows without a coding have names already. An address that ends as a longer one is the same film.

    Raises:
        DataError: Films with several codings, which are all named.
    """
    rows = list(rows)
    codings: dict[str, dict[str, None]] = {}  # in order
    for row in rows:
        known = codings.setdefault(row.video, {})
        if row.coding or not known:
            known[row.coding or row.place] = None
    ends = {film: _ends(film) for film in dict.fromkeys(row.video for row in rows if row.coding)}
    counts = Counter(end for each in ends.values() for end in each)
    names = {
        film: next((end for end in each if counts[end] == 1), film) for film, each in ends.items()
    }
    tables = {row.video for row in rows if not row.coding}
    faults: list[tuple[str, str, str]] = []
    for film in ends:
        alike = [other for other in ends if other.endswith(f"/{film}")] if counts[film] > 1 else []
        alike += [names[film]] if names[film] in tables else []
        places = list(dict.fromkeys(place for each in (film, *alike) for place in codings[each]))
        faults += [(film, places[0], other) for other in places[1:2]]
    if faults:
        listed = "; ".join(
            f"{other}: annotates video '{film.rpartition('/')[2]}', as {first} does"
            for film, first, other in faults[:_SHOWN]
        )
        listed += f" (and {counted(len(faults) - _SHOWN, 'more video')})" * (len(faults) > _SHOWN)
        whole = all(each.endswith(")") for _, *both in faults for each in both)
        ways = "Leave one out" + ", or name the films by their files of annotations" * whole
        raise DataError(f"{listed}. {ways}.", setting="by_file" * whole)
    apart = [name for name in names.values() if "/" in name]
    note = f"{counted(len(apart), 'video')} have file names that others have too; their names begin"
    notes = [f"{note} with folders, as in {', '.join(apart[:2])}."] if apart else []
    return [replace(row, video=names.get(row.video, row.video)) for row in rows], notes


def _ends(film: str) -> list[str]:
    """The ends of an address, the shortest first."""
    parts = film.split("/")
    return ["/".join(parts[-count:]) for count in range(1, min(len(parts), _DEEPEST) + 1)]
