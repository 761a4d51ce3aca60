"""Forms that are not read: each is recognised and refused by its name, with a way out."""

from __future__ import annotations

from cefito.tracks.document import Format, Told

_TABLE = "Write its steps as a table with the columns step, start and end (seconds)."
_MARKERS = "Export the markers or clips as a table (CSV) with names, starts and ends."
_ELAN = "Import it into ELAN (File > Import) and give the .eaf."
_CAPTIONS = "Convert it to SRT, as ffmpeg does."
_CHAPTERS = 'Write a line such as "0:30 Boil water" for each.'
_XML = (  # name, ending, first element, way out
    ("Final Cut Pro XML", ".fcpxml", "fcpxml", _MARKERS),
    ("Final Cut Pro 7 XML, also of Premiere", ".xml", "xmeml", _MARKERS),
    ("of ANVIL", ".anvil", "annotation", _TABLE),
    ("TTML captions", ".ttml", "tt", _CAPTIONS),
    ("Matroska chapters", ".xml", "Chapters", _CHAPTERS),
    ("of Transcriber", ".trs", "Trans", _ELAN),
    ("of EXMARaLDA", ".exb", "basic-transcription", _ELAN),
)
_TEXTS = (  # name, ending, what the text has, way out
    ("a Praat TextGrid", ".textgrid", r'\A\s*(?:File type = )?"ooText', _ELAN),
    (
        "an edit decision list (EDL)",
        ".edl",
        r"\A(?!.*\|M:[^\n]*\|D:).*?"  # markers, which are read
        r"^\s*[0-9]{3,6} +\S+ +\S+ +[CDWK]\S* +(?:[0-9]{3} +)?(?:[0-9]{2}[:;]){3}[0-9]{2}\s",
        _MARKERS,
    ),
    ("an Avid log (ALE)", ".ale", r"\AHeading\s+FIELD_DELIM", _MARKERS),
    ("an export of Datavyu", ".opf", r"\A#[0-9]\r?\n|^[^\n,(]+ \((?:MATRIX|NOMINAL|TEXT),", _TABLE),
    ("the CSV of VIA", ".csv", r"^# ?CSV_HEADER ?=", "Give its project (.json)."),
    (
        "a project of VIA 2",
        ".json",
        "_via_img_meta",
        "VIA 3 has temporal segments. Annotate steps with it.",
    ),
    (
        "a project of BORIS",
        ".boris",
        '"(?:behaviors_conf|project_format_version)"',
        "Choose Observations > Export events > Aggregated events in BORIS.",
    ),
    (
        "a project of LosslessCut",
        ".llc",
        r"\A\s*\{\s*version:|cutSegments:",
        f"Export its segments as CSV. {_TABLE}",
    ),
    ("an annotation of Vidat", ".json", '"actionAnnotationList"', _TABLE),
    ("OpenTimelineIO", ".otio", '"OTIO_SCHEMA"', _MARKERS),
    ("an export of Labelbox", ".ndjson", '"data_row"', _TABLE),
    (
        "COCO, whose boxes are no steps",
        ".json",
        r'"categories"\s*:.*"bbox"|"bbox".*"categories"\s*:',
        _TABLE,
    ),
    (
        "results of ActivityNet",
        ".json",
        r'\A\s*\{(?!.*"database"\s*:).*"results"\s*:\s*\{.*"segment"\s*:',
        'Give the file of annotations, {"database": …}.',
    ),
    ("captions as of ActivityNet Captions", ".json", r'"timestamps"\s*:.*"sentences"\s*:', _TABLE),
    ("chapters as yt-dlp writes them", ".json", r'"chapters"\s*:\s*\[\s*\{', _CHAPTERS),
    (
        "a transcript of Whisper",
        ".json",
        r'"segments"\s*:.*"text"\s*:',
        "Let it write SRT or WebVTT.",
    ),
    ("a cue sheet", ".cue", r"^\s*INDEX [0-9]{2} [0-9]{2}:", _CHAPTERS),
    ("Advanced SubStation captions", ".ass", r"\A\s*\[Script Info\]", _CAPTIONS),
    ("MicroDVD captions", ".sub", r"\A\s*\{[0-9]+\}\{[0-9]+\}", _CAPTIONS),
    ("chapters of FFmpeg", ".txt", r"\A\s*;FFMETADATA", _CHAPTERS),
    ("OGM chapters", ".txt", r"\A\s*CHAPTER[0-9]+=", _CHAPTERS),
    ("CLAN's CHAT", ".cha", r"\A@(?:UTF8|Begin)", _ELAN),
    (
        "ranges of frames with a label, as Breakfast has them",
        ".txt",
        r"\A(?:[0-9]+-[0-9]+[ \t]+\S+[ \t]*\r?\n){2}",
        "Give the files with a label a frame (groundTruth), or a table.",
    ),
)
_ELAN_TEXT = (
    r'(?i)\A(?:"?#file:'  # lines above; no names of columns; a column a tier
    r"|[^\t\n]+\t[^\t\n]*\t(?:[0-9]{2}:){2}[0-9]{2}\.[0-9]{3}\t[0-9]"
    r"|[^\t\n]+\t\t[0-9]+(?:\.[0-9]+)?\t[0-9]"
    r"|(?:(?:begin|end) time|duration) - [^\t\n]*\t(?![^\n]*\bannotation))"
)
FORMATS = (
    Format(
        name="ELAN's tab-delimited text in another layout",
        endings=(".txt",),
        told=Told.COLUMNS_OF_TOOLS,  # after tables whose columns are chosen
        marks=(_ELAN_TEXT,),
        remedy="Give the .eaf, or export it with names of columns first, and none for a tier.",
    ),
    Format(
        name="AAF, or a document of Office",
        endings=(".aaf", ".doc", ".xls"),
        told=Told.FIRST_BYTES,
        starts=b"\xd0\xcf\x11\xe0",
        remedy=_MARKERS,
    ),
    *(
        Format(name=name, endings=(ending,), told=Told.NOT_READ, tags=((tag,),), remedy=remedy)
        for name, ending, tag, remedy in _XML
    ),
    *(
        Format(name=name, endings=(ending,), told=Told.NOT_READ, marks=(mark,), remedy=remedy)
        for name, ending, mark, remedy in _TEXTS
    ),
)
