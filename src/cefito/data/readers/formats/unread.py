"""Forms that are not read: each is recognised and refused by its name, with a way out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cefito.data.readers.formats.document import Document, Format, StepRow

_TABLE = "Write its steps as a table with the columns step, start and end (seconds)."
_MARKERS = "Export the markers or clips as a table (CSV) with names, starts and ends."
_ELAN = "Import it into ELAN (File > Import) and give the .eaf."
_CAPTIONS = "Convert it to SRT, as ffmpeg does."
_CHAPTERS = 'Write a line such as "0:30 Boil water" for each.'
_ROOTS = {  # names of forms of XML and ways out, by the first element
    "fcpxml": ("Final Cut Pro XML", _MARKERS),
    "xmeml": ("Final Cut Pro 7 XML, also of Premiere", _MARKERS),
    "annotation": ("of ANVIL", _TABLE),
    "tt": ("TTML captions", _CAPTIONS),
    "Chapters": ("Matroska chapters", _CHAPTERS),
    "Trans": ("of Transcriber", _ELAN),
    "basic-transcription": ("of EXMARaLDA", _ELAN),
}
_TEXTS = (  # names of forms, ways out, and what the text has
    ("a Praat TextGrid", _ELAN, r'\A\s*(?:File type = )?"ooText'),
    (
        "an edit decision list (EDL)",
        _MARKERS,
        r"^\s*[0-9]{3,6} +\S+ +\S+ +[CDWK]\S* +(?:[0-9]{3} +)?(?:[0-9]{2}[:;]){3}[0-9]{2}\s",
    ),
    ("an Avid log (ALE)", _MARKERS, r"\AHeading\s+FIELD_DELIM"),
    ("an export of Datavyu", _TABLE, r"\A#[0-9]\r?\n|^[^\n,(]+ \((?:MATRIX|NOMINAL|TEXT),"),
    ("the CSV of VIA", "Give its project (.json).", r"^# ?CSV_HEADER ?="),
    ("a project of VIA 2", "VIA 3 has temporal segments. Annotate steps with it.", "_via_img_meta"),
    (
        "a project of BORIS",
        "Choose Observations > Export events > Aggregated events in BORIS.",
        '"(?:behaviors_conf|project_format_version)"',
    ),
    (
        "a project of LosslessCut",
        f"Export its segments as CSV. {_TABLE}",
        r"\A\s*\{\s*version:|cutSegments:",
    ),
    ("an annotation of Vidat", _TABLE, '"actionAnnotationList"'),
    ("OpenTimelineIO", _MARKERS, '"OTIO_SCHEMA"'),
    ("an export of Labelbox", _TABLE, '"data_row"'),
    (
        "COCO, whose boxes are no steps",
        _TABLE,
        r'"categories"\s*:.*"bbox"|"bbox".*"categories"\s*:',
    ),
    ("captions as of ActivityNet Captions", _TABLE, r'"timestamps"\s*:.*"sentences"\s*:'),
    (
        "JSON lines of cefito recognise",
        "Write the steps with --out STEPS.csv instead.",
        '"task_probability"',
    ),
    ("chapters as yt-dlp writes them", _CHAPTERS, r'"chapters"\s*:\s*\[\s*\{'),
    ("a transcript of Whisper", "Let it write SRT or WebVTT.", r'"segments"\s*:.*"text"\s*:'),
    ("a cue sheet", _CHAPTERS, r"^\s*INDEX [0-9]{2} [0-9]{2}:"),
    ("Advanced SubStation captions", _CAPTIONS, r"\A\s*\[Script Info\]"),
    ("MicroDVD captions", _CAPTIONS, r"\A\s*\{[0-9]+\}\{[0-9]+\}"),
    ("chapters of FFmpeg", _CHAPTERS, r"\A\s*;FFMETADATA"),
    ("OGM chapters", _CHAPTERS, r"\A\s*CHAPTER[0-9]+="),
    ("CLAN's CHAT", _ELAN, r"\A@(?:UTF8|Begin)"),
    (
        "ranges of frames with a label, as Breakfast has them",
        "Give the files with a label a frame (groundTruth), or a table.",
        r"\A(?:[0-9]+-[0-9]+[ \t]+\S+[ \t]*\r?\n){2}",
    ),
)
_FORMS = [
    (name, remedy, re.compile(text, re.MULTILINE | re.DOTALL)) for name, remedy, text in _TEXTS
]


def _form(document: Document) -> tuple[str, str] | None:
    """Return name and way out of a form that is not read; None if it is none of these."""
    if document.data.startswith(b"\xd0\xcf\x11\xe0"):
        return "AAF, or a document of Office", _MARKERS
    if document.tags:
        return _ROOTS.get(document.tags[0])
    for name, remedy, text in _FORMS:
        if text.search(document.head):
            return name, remedy
    return None


def _refuse(document: Document) -> Iterator[StepRow]:
    name, remedy = _form(document) or ("", "")
    raise document.wrong(f"is {name}, which is not read. {remedy}")


FORMAT = Format(name="", recognises=lambda document: _form(document) is not None, read=_refuse)
