"""A file of annotations: its text in any common encoding, its XML or JSON, its steps and films.

A `Format` reads a `Document` and yields `StepRow`s. Its errors name the file and the format.
"""

from __future__ import annotations

import codecs
import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers import expat

from pydantic import ConfigDict, Field, ValidationError

from cefito.data.vocabulary import nfc
from cefito.errors import ConfigError, DataError, explained, first_error
from cefito.files import NOT_JSON, parse_json, read_bytes
from cefito.markup import counted, decoded, parse_seconds, table_columns
from cefito.settings import Record, Settings
from cefito.tracks.track import Track

_ENDING = re.compile(r"(?<=[^/])\.(?=\w*[A-Za-z])\w{2,5}$")
_ROOTED = re.compile(r"[/\\]|[A-Za-z]:[/\\]|\w[\w+.-]*://")
_UPLOADED = re.compile(r"((?:^|/)upload/(?:\d+/)?[0-9a-f]{8})-(?=[^/]+$)")  # by Label Studio
_TIMECODE = re.compile(r"(?:([0-9]{1,3})[:;])?([0-9]{1,3})[:;]([0-9]{2})([:;])([0-9]{1,3})")
_DEEPEST = 16  # folders in a name
_SHOWN = 5  # films or names in a message


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
    group: str = ""  # of the video: a person, a day, a machine
    errors: tuple[str, ...] = ()  # kinds of what was done wrongly


def film_address(location: str, folder: str = "") -> str:
    """Return the path of a film without scheme, query and ending; empty if there is no film.

    "rec/P01/front" for "s3://rec/P01/front.mp4". A relative path is resolved in `folder`.
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
    kept = [
        folder_name for name in path.split("/") if (folder_name := name.rstrip(":")).strip(". ")
    ]
    return nfc(_ENDING.sub("", _UPLOADED.sub(r"\1/", "/".join(kept))))


def named_films(rows: Sequence[StepRow]) -> tuple[list[StepRow], list[str]]:
    """Give films the shortest ends of their addresses that tell them apart; also return a note.

    Rows without a coding have names already. An address that ends as a longer one is the same film.

    Raises:
        DataError: Films with several codings, which are all named.
    """
    codings: dict[str, dict[str, None]] = {}  # in order
    for row in rows:
        places_of = codings.setdefault(row.video, {})
        if row.coding or not places_of:
            places_of[row.coding or row.place] = None
    names, counts = shortest_ends(row.video for row in rows if row.coding)
    tables = {row.video for row in rows if not row.coding}
    faults: list[tuple[str, str, str]] = []
    for film in names:
        alike = [other for other in names if other.endswith(f"/{film}")] if counts[film] > 1 else []
        alike += [names[film]] if names[film] in tables else []
        places = list(
            dict.fromkeys(place for address in (film, *alike) for place in codings[address])
        )
        faults += [(film, places[0], other) for other in places[1:2]]
    if faults:
        listed = "; ".join(
            f"{other}: annotates video '{film.rpartition('/')[2]}', as {first} does"
            for film, first, other in faults[:_SHOWN]
        )
        listed += f" (and {counted(len(faults) - _SHOWN, 'more video')})" * (len(faults) > _SHOWN)
        whole = all(place.endswith(")") for _, *both in faults for place in both)
        ways = "Leave one out" + ", or name the films by their files of annotations" * whole
        raise DataError(f"{listed}. {ways}.", setting="by_file" * whole)
    apart = [name for name in names.values() if "/" in name]
    note = f"{counted(len(apart), 'video')} have file names that others have too; their names begin"
    notes = [f"{note} with folders, as in {', '.join(apart[:2])}."] if apart else []
    return [replace(row, video=names.get(row.video, row.video)) for row in rows], notes


def shortest_ends(addresses: Iterable[str]) -> tuple[dict[str, str], Counter[str]]:
    """Return the shortest end of each address that no other one has, and counts of all ends.

    An address that ends as a longer one stays whole.
    """
    ends = {}
    for film in addresses:
        parts = film.split("/")
        longest = min(len(parts), _DEEPEST)
        ends[film] = ["/".join(parts[-count:]) for count in range(1, longest + 1)]
    counts = Counter(end for film_ends in ends.values() for end in film_ends)
    names = {
        film: next((end for end in film_ends if counts[end] == 1), film)
        for film, film_ends in ends.items()
    }
    return names, counts


_AGAIN = "Export it again."
_NOT_XML = expat.ExpatError, ParseError, ValueError, LookupError, AssertionError
_DECLARED = re.compile(rb"<\?xml[^>]{0,200}encoding")
MAX_RATE = 1000
"""Most frames per second."""
STRUCTURED = re.compile(r"\s*(?:[{<]|\[\s*(?:[\[{\"]|$))")
"""Begins JSON and XML."""
_HEAD = 1 << 16  # bytes in which the first elements of XML are looked for


class Choices(Settings):
    """What annotations leave open, given by the user."""

    columns: Mapping[str, str] = Field({}, description="A table's own names, by the expected ones.")
    task: str | None = Field(None, description="Task of all videos, of files that hold no tasks.")
    tier: str | None = Field(
        None, description="Tier, track or control tag with the steps, of files with several."
    )
    error_tier: str | None = Field(
        None,
        description="Tier, track or control tag with errors of the steps, as a table's column "
        "error has them; by default one named error, errors, mistake or mistakes.",
    )
    frame_rate: float | None = Field(
        None, gt=0, le=MAX_RATE, description="Frames per second, of files that count frames."
    )
    video_table: Path | None = Field(
        None,
        description="CSV with the column video and any of task, split, group, seconds (length of "
        "the video) and frame_rate, which the files do not hold.",
    )
    encoding: str | None = Field(
        None,
        description="Encoding of text, such as cp1252; by default Unicode, or else Windows-1252.",
    )
    by_file: bool = Field(
        False,
        description="Name each video by its file of annotations, not by the film that the file "
        "names.",
    )
    task_pattern: str | None = Field(
        None,
        description="Regular expression with a group, which is the task in names of videos, of "
        "files that hold no tasks: _([a-z]+)$ in P03_cam01_P03_cereals.",
    )
    background: str | None = Field(
        None,
        description="Labels that are no steps, separated by commas, of labels of frames; by "
        "default background, bg, SIL, null, void, no_action, action_start and action_end, and of "
        "LeRobot data sets background.",
    )
    bundle: int | None = Field(
        None,
        ge=0,
        description="Number of the split of labels of frames, as in train.split2.bundle; by "
        "default the first.",
    )

    def task_of(self, video: str) -> str:
        """Return the task of a video: that of all, or as its name has it; empty if unknown.

        Raises:
            ConfigError: The pattern is no regular expression, or has no single group.
        """
        if self.task or not self.task_pattern:
            return " ".join(nfc(self.task or "").split())
        expected = "Give a regular expression with one group, as in _([a-z]+)$."
        how: dict[str, Any] = {"error": ConfigError, "setting": "task_pattern"}
        with explained(
            self.task_pattern, "is no such pattern", expected, ValueError, re.error, **how
        ):
            pattern = re.compile(self.task_pattern)
            if pattern.groups != 1:
                raise ValueError(f"it has {pattern.groups} groups")
        match = pattern.search(video.rpartition("/")[2])
        return " ".join((match[1] or "").split()) if match else ""


class LooseRecord(Record):
    """Base of records of other programs' JSON, whose further keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_AnyRecord = TypeVar("_AnyRecord", bound=Record)


@dataclass(eq=False)
class Document:
    """A file of annotations."""

    path: Path
    choices: Choices  # what the user gave
    rate_of: Callable[[str], float | None]  # frame rate of a video; None if it is not known
    format: str = ""  # name of its format, once it is recognised; empty for tables of steps
    # annotations that are no steps, by kind
    left_out: Counter[str] = field(default_factory=Counter)
    # what was read in a way that the user should know, in words, and how often
    notes: Counter[str] = field(default_factory=Counter)
    remedy: str = "Annotate steps and export it again."  # for a file without steps
    empty: tuple[str, DataError] | None = None  # what all of a file lacks, in words, and the error
    read_as: str = ""  # encoding of a text that is not Unicode, once the text was used

    @cached_property
    def data(self) -> bytes:
        """Content of the file."""
        return read_bytes(self.path, "Give a file of annotated steps.")

    @cached_property
    def _decoded(self) -> tuple[str, str]:
        return decoded(self.data, self.path, self.choices.encoding)

    @property
    def head(self) -> str:
        """The text, to recognise a format by."""
        return self._decoded[0]

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of the columns, in lower case, if the text is a table of any kind."""
        return frozenset(table_columns(self.head[:_HEAD].replace("\r", "\n")))

    @property
    def text(self) -> str:
        """The text, in Unicode's form C, with line feeds as ends of lines."""
        text, self.read_as = self._decoded
        return nfc(text.replace("\r\n", "\n").replace("\r", "\n"))

    @property
    def video(self) -> str:
        """Address of the video of a file that annotates one; `file_names` is undone.

        A film that was downloaded keeps its name, as in "My%20Film".
        """
        path = self.path.resolve()
        written = re.search("%2[5F]", path.stem)  # of a name with a folder, or with "%"
        stem = unquote(path.stem).strip("/") if written else path.stem
        return nfc("/".join((*path.parts[1:-1], stem)))

    def film(self, location: str) -> str:
        """Return the address of a film by its path or address; empty if that names none."""
        address = film_address(location, str(self.path.resolve().parent))
        return self.video if address and self.choices.by_file else address

    def place(self, where: str = "") -> str:
        """Return file, format and place, which begin a message."""
        name = f"{self.path} ({self.format})" if self.format else str(self.path)
        return f"{name}, {where}" if where else name

    def wrong(self, problem: str, where: str = "", *, setting: str = "") -> DataError:
        """Return an error.

        Args:
            problem: The problem and its remedy, in sentences.
            where: Place in the file, such as "line 3".
            setting: Setting of `Choices` that helps.
        """
        return DataError(f"{self.place(where)}: {problem}", setting=setting)

    def rate(self, video: str, written: object = None, problem: str = "", where: str = "") -> float:
        """Return the frames per second of a video: as chosen, or as written; else a DataError.

        Args:
            video: Id of the video.
            written: Frames per second that the file holds, if they are usable.
            problem: Problem and remedy of the error.
            where: Place in the file.
        """
        rate = self.rate_of(video) or self.choices.frame_rate
        if rate is None and isinstance(written, int | float) and 0 < written <= MAX_RATE:
            return float(written)
        if rate is None:
            unknown = "counts frames and holds no frame rate. Give the frames per second."
            raise self.wrong(problem or unknown, where, setting="frame_rate")
        return rate

    def seconds(self, time: str, video: str) -> float:
        """Return the seconds of a time, also of a timecode with frames or milliseconds at its end.

        Three digits at the end are milliseconds. Frames behind ";" are those of a drop-frame code,
        which keeps the time of the clock; behind ":", all frames since 0 are counted.
        """
        code = _TIMECODE.fullmatch(time.strip())
        if code is None or (code[1] is None and code[4] == ":"):
            return parse_seconds(time)
        hours, minutes, whole_seconds, sign, last = code.groups()
        whole = parse_seconds(f"{hours or 0}:{minutes[-2:]}:{whole_seconds}")
        if len(last) == 3:
            return whole + int(last) / 1000
        rate = self.rate(video)
        if int(last) >= rate > 1:
            raise ValueError(f"{time!r} has {last} of {rate:g} frames")
        return (whole if sign == ";" else whole * math.ceil(rate) / rate) + int(last) / rate

    def unique(self, pairs: Iterable[tuple[_Key, _Value]], what: str) -> dict[_Key, _Value]:
        """Return a mapping; keys that have several values are refused."""
        values: dict[_Key, _Value] = {}
        repeated = [key for key, value in pairs if values.setdefault(key, value) != value]
        if repeated:
            shown = ", ".join(f"'{key}'" for key in list(dict.fromkeys(repeated))[:_SHOWN])
            raise self.wrong(f"has several {what} {shown}. {_AGAIN}")
        return values

    def json(self, text: str | None = None) -> Any:
        """Parse JSON, by default the whole file; refuse repeated keys and half characters."""
        text = self.text if text is None else text
        with explained(self.place(), "is damaged JSON", _AGAIN, *NOT_JSON):
            value = parse_json(text)
            if "\\ud" in text.casefold():  # half of a surrogate pair is no character
                json.dumps(value, ensure_ascii=False).encode()
            return value

    def record(self, kind: type[_AnyRecord], value: object, where: str = "") -> _AnyRecord:
        """Make a record of a part of JSON.

        Args:
            kind: Class of the record.
            value: The value that JSON holds.
            where: Place in the file.
        """
        try:
            return kind.model_validate(value)
        except ValidationError as problem:
            fault = f"is not as {self.format} writes it ({first_error(problem)}). {_AGAIN}"
            raise self.wrong(fault, where) from problem

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Names of the first two elements of XML, to recognise a format by."""
        head = self.data[:_HEAD].lstrip()
        wide = head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        text = head.decode("utf-16" if wide else "latin-1", "ignore").lstrip("\ufeffï»¿")
        if not text.startswith("<"):
            return ()
        return tuple(
            re.findall(r"<([A-Za-z_][\w.-]*)", re.sub(r"(?s)<!--.*?(?:-->|\Z)", "", text))[:2]
        )

    def xml(self) -> Element:
        """Parse XML; entities, with which small files become huge ones, are refused."""
        builder = TreeBuilder()
        with explained(self.place(), "is damaged XML", _AGAIN, *_NOT_XML):
            parser = self._parser()
            parser.buffer_text = True
            parser.StartElementHandler = builder.start
            parser.EndElementHandler = builder.end
            parser.CharacterDataHandler = builder.data
            parser.Parse(self.data.lstrip(), True)
            return builder.close()

    def _parser(self) -> expat.XMLParserType:
        def refuse(*_: object) -> None:
            raise self.wrong(f"declares XML entities, which are not read. {_AGAIN}")

        def skipped(name: str, _: object) -> None:
            raise self.wrong(f"has the XML entity '{name}', which it does not declare. {_AGAIN}")

        encoding = self.choices.encoding
        if encoding is None and not _DECLARED.match(self.data.lstrip()):
            encoding = self._decoded[1] or None
            self.read_as = encoding or ""
        parser = expat.ParserCreate(encoding)
        parser.EntityDeclHandler = refuse
        parser.SkippedEntityHandler = skipped
        return parser


class Told(IntEnum):
    """By what a format is told from others; surer marks are looked for first."""

    FIRST_BYTES = 0
    NOT_READ = 1  # by the marks of a form that is refused
    MARKS = 2  # names of elements or entries that a tool writes
    COLUMNS = 3  # of a table of steps
    COLUMNS_OF_TOOLS = 4
    RUNS = 5  # of equal lines
    TIMES = 6  # in lines
    REST = 7  # any other text


def _unwritten(tracks: Sequence[Track]) -> str:
    raise NotImplementedError("a format without a key is not written")


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form of annotations: how it is recognised, and how it is read and written, or refused.

    A file is of the format if `recognises` or its first bytes say so, if its XML begins with one
    of `tags`, or if its text, which is no XML, has all of `marks`.

    Raises:
        TypeError: No name, ending or way to recognise it; neither a reader nor a way out, or both;
            or a writer without a key.
    """

    name: str  # in messages
    endings: tuple[str, ...]  # of files, with the dot; the first one of those that are written
    told: Told = Told.MARKS
    tags: tuple[tuple[str, ...], ...] = ()  # names of the first one or two elements
    marks: tuple[str, ...] = ()  # regular expressions; "^" and "$" are ends of lines
    recognises: Callable[[Document], bool] | None = None
    starts: bytes = b""  # of the file
    # yields the steps; a file that is not whole raises a DataError, LookupError or ValueError
    read: Callable[[Document], Iterator[StepRow]] | None = None
    remedy: str = ""  # the way out of a form that is not read, in sentences
    step: str = ""  # word for what becomes a step; empty for tables of steps
    tier: str = ""  # word for what groups steps, of which one is chosen; empty if there is no such
    key: str = ""  # name in options, of a format that is written
    # returns the text of a file of tracks; with `frames`, of tracks and frames a second
    write: Callable[..., str] = _unwritten
    single: bool = False  # whether a file that is written holds one video alone
    frames: bool = False  # whether times are written as numbers of frames
    # text of further files of a folder, by path, of all tracks
    beside: Callable[[Sequence[Track]], Mapping[str, str]] = lambda _: {}
    folder: str = ""  # of the files of videos in that folder

    def __post_init__(self) -> None:
        patterns = [re.compile(mark, re.MULTILINE | re.DOTALL) for mark in self.marks]
        object.__setattr__(self, "_patterns", patterns)
        lacking = {
            "a name": self.name.strip(),
            "endings with a dot": self.endings
            and all(ending[:1] == "." for ending in self.endings),
            "a way to recognise it": self.starts or self.tags or patterns or self.recognises,
            "either a reader or a remedy": (self.read is None) == bool(self.remedy.strip()),
            "a key and a writer, or neither": (self.write is _unwritten) != bool(self.key.strip()),
        }
        if faults := [what for what, has in lacking.items() if not has]:
            raise TypeError(f"format {self.name!r}: expected {', '.join(faults)}")

    @property
    def ending(self) -> str:
        """Ending of files that are written."""
        return self.endings[0]

    def text(self, tracks: Sequence[Track], frame_rate: float | None = None) -> str:
        """Return the text of a file of tracks; errors are those of `check_rate`, or a ConfigError.

        The latter is of tracks with what the format cannot hold.
        """
        self.check_rate(frame_rate)
        return self.write(tracks, frame_rate) if self.frames else self.write(tracks)

    def check_rate(self, frame_rate: float | None) -> None:
        """Refuse to count frames without their number a second (ConfigError)."""
        if self.frames and (frame_rate is None or not 0 < frame_rate <= MAX_RATE):
            expected = f"Give the frames per second, at most {MAX_RATE:,}"
            problem = f"{self.name}: times are written in frames. {expected}"
            raise ConfigError(f"{problem}.", setting="frame_rate")

    def matches(self, document: Document) -> bool:
        """Whether a file has the content of the format."""
        if self.recognises is not None:
            return self.recognises(document)
        if self.starts:
            return document.data.startswith(self.starts)
        if document.tags:
            return any(document.tags[: len(tags)] == tags for tags in self.tags)
        patterns: list[re.Pattern[str]] = vars(self)["_patterns"]
        return bool(patterns) and all(pattern.search(document.head) for pattern in patterns)


def timecode(frame: int, rate: float) -> str:
    """Return the code of a frame, "00:00:04:12", by a rate of at most 100 (ConfigError)."""
    if rate > 100:
        problem = f"{rate:g} frames per second: a timecode has two digits for frames"
        raise ConfigError(f"{problem}. Give at most 100.", setting="frame_rate")
    whole, frames = divmod(frame, math.ceil(rate))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}:{frames:02d}"


def whole_number(text: str) -> int:
    """Return a whole number of at most 18 plain digits (ValueError)."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise ValueError(f"{text[:40]!r} is not a whole number of at most 18 digits")
    return int(text)
