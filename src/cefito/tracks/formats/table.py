"""Tables of steps, CSV or Parquet: one line a step, with names of columns that can be chosen.

Names of columns say in which unit times are. Tables that a tool wrote are read by their own names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cefito.data.annotations import SPLITS
from cefito.data.vocabulary import nfc, similar_names
from cefito.errors import DataError, explained, install_command
from cefito.files import check_binary
from cefito.markup import TIME_FORMS, Faults, check_columns, csv_rows, csv_text, is_number
from cefito.tracks.document import STRUCTURED, Document, Format, StepRow, Told
from cefito.tracks.track import Track, error_kinds

COLUMNS = ("video", "task", "step", "start", "end")
SHAPE = (
    "Expected the columns video, task, step, start, end (seconds) and, optionally, split (train, "
    "val or test), group (a person, a day) and error (no, yes, or kinds with ';' between)."
)
_NEEDED = {"video", "step", "start"}  # by which a table of steps is recognised
_FREE = ("split", "group", "error", "duration", "tier")  # columns that may be absent
_EMPTY = ("error", "tier", "group")  # whose cells may be empty
_ENDINGS = (".parquet", ".pq")
_LENGTHS = re.compile(r"duration|length|(?<![a-z])dur(?![a-z])|dauer|durée")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}[.,][0-9]{3}")  # or three decimals


def _words(*words: str) -> re.Pattern[str]:
    """Match any of the words between other letters, or at the end behind a word for a time."""
    listed = "|".join(words)
    times = "start|begin|end|stop|time|onset|offset|duration"
    return re.compile(rf"(?<![a-z.])(?:{listed})(?![a-z])|(?:{times}|^t[0-9])(?:{listed})$")


_CLOCK = re.compile(r"h{1,2}:m|m{1,2}:s|(?<![a-z])hms(?![a-z])|timecode|smpte")
_UNITS: tuple[tuple[str, float, re.Pattern[str]], ...] = (  # name, seconds or 0, in column names
    ("frames", 0, re.compile("frame")),
    ("samples", 0, re.compile("sample|tick|percent|pct|%")),
    ("nanoseconds", 1e-9, _words("ns", "nsecs?", "nanos?", "nanosec(?:ond)?s?")),
    ("microseconds", 1e-6, _words("[uµμ]s", "usecs?", "micros?", "microsec(?:ond)?s?")),
    ("milliseconds", 1e-3, _words("ms", "msecs?", "millis?", "millisec(?:ond)?s?")),
    ("hundredths of a second", 1e-2, _words("cs", "csecs?", "centisec(?:ond)?s?")),
    ("minutes", 60, _words("mins?", "minutes?")),
    ("hours", 3600, _words("hrs?", "hours?")),
)


class Tool(NamedTuple):
    """A table of a tool: its names of columns by ours, in the order in which they are taken."""

    name: str
    columns: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, ...]] = {}
    steps: tuple[str, str] = ("", "")  # a column, and its value in lines that are steps

    def names(self, columns: Mapping[str, Any]) -> dict[str, str]:
        """Return the names of columns that a table has; none if it is not of the tool."""
        named = {
            ours: next((name for name in names if name in columns), "")
            for ours, names in (*self.columns.items(), *self.optional.items())
        }
        whole = all(named[ours] for ours in self.columns) and self.steps[0] in (*columns, "")
        return {ours: name for ours, name in named.items() if name} if whole else {}

    def wrote(self, document: Document) -> bool:
        """Whether a document is a table of the tool, without the columns of a table of steps."""
        names = self.names(dict.fromkeys(document.columns))
        return bool(names) and not STRUCTURED.match(document.head) and not _is_named(document)


ELAN_TEXT = Tool(
    "ELAN's tab-delimited text",
    {
        "step": ("annotation", "annotation value"),
        "start": tuple(f"begin time - {unit}" for unit in ("ss.msec", "msec", "hh:mm:ss.ms")),
        "end": tuple(f"end time - {unit}" for unit in ("ss.msec", "msec", "hh:mm:ss.ms")),
    },
    {"tier": ("tier",), "video": ("file path", "file name", "file")},
)
OBSERVER = Tool(
    "The Observer XT",
    {"step": ("behavior",), "start": ("time_relative_sf",), "duration": ("duration_sf",)},
    {"tier": ("subject",), "video": ("observation",)},
    ("event_type", "state start"),
)
PREMIERE = Tool("Premiere's markers", {"step": ("marker name",), "start": ("in",), "end": ("out",)})
BIDS = Tool(
    "events of BIDS", {"step": ("trial_type",), "start": ("onset",), "duration": ("duration",)}
)
TOOLS = (ELAN_TEXT, OBSERVER, PREMIERE, BIDS)
"""Tables that are read by their own names of columns."""


class _Table(NamedTuple):
    """What the names of columns and the choices say of a table."""

    names: Mapping[str, str]  # of columns, by ours
    units: Mapping[str, str]  # of start, end and duration, if their names say it
    alone: bool  # whether it holds starts alone
    tool: Tool | None


def read_table(document: Document) -> Iterator[StepRow]:
    """Yield the steps of a table, whose times have the same decimal sign."""
    is_csv = not _is_parquet(document)
    lines = csv_rows(document.text, document.path, SHAPE) if is_csv else _parquet(document.path)
    first = next(lines, None)
    if first is None:
        return
    table = _table(document, first[1])
    faults, rows = Faults(), list[StepRow]()
    signs: dict[str, str] = {}  # place of the first time with each decimal sign
    written: dict[str, list[str]] = defaultdict(list)  # times of each video
    for place, cells in _cells(document, table, chain([first], lines), faults):
        video, coding = cells.get("video", ""), ""
        if not video or table.tool is not None:
            video, coding = document.film(video) or document.video, document.place()
        ours = [name for name in ("start", "end", "duration") if name in cells]
        try:
            times = {name: _seconds(document, table, cells, name, video) for name in ours}
        except ValueError as problem:
            said = " to ".join(repr(cells[name]) for name in ours)
            faults.add("times", place, f"the step runs from {said} ({problem}). {TIME_FORMS}")
            continue
        for sign in ".,":
            if any(sign in cells[name] for name in ours):
                signs.setdefault(sign, place)
                other, before = next(iter(signs.items()))
                if sign != other:
                    line = before.rpartition(", ")[2]
                    differs = f"has another decimal sign than {line}. Write times alike."
                    faults.add("sign", place, differs)
        written[video] += [cells[name] for name in ours]
        end = times["start"] + times["duration"] if "duration" in ours else times.get("end")
        facts = cells.get("task", ""), cells["split"], cells.get("tier", "")
        errors = error_kinds(cells.get("error", ""))
        row = StepRow(video, cells["step"], times["start"], end, place, *facts, coding)
        rows.append(replace(row, errors=errors, group=cells.get("group", "")))
    faults.check()
    _check_thousands(document, written)
    if table.alone:
        yield from _until_next(document, rows)
    else:
        yield from rows


def _until_next(document: Document, rows: list[StepRow]) -> Iterator[StepRow]:
    """End each step where the next one of its video begins, and the last one with the video."""
    document.notes["steps, which end where the next one of their video begins"] += len(rows)
    starts: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        starts[row.video].add(row.start)
    after = {video: dict(pairwise(sorted(times))) for video, times in starts.items()}
    for row in rows:
        yield replace(row, end=after[row.video].get(row.start))


def _seconds(
    document: Document, table: _Table, cells: Mapping[str, str], name: str, video: str
) -> float:
    """Return the seconds of a cell in the unit of its column."""
    text, unit = cells[name], table.units.get(name, "")
    scale = next((scale for unit_name, scale, _ in _UNITS if unit_name == unit), 1.0)
    if unit and scale < 1:
        if ":" in text or ";" in text:
            raise ValueError(f"{text!r} is a time of a clock, in a column of {unit}")
        if _THOUSANDS.fullmatch(text):
            raise ValueError(f"{text!r} has a thousands separator or three decimals")
    value = document.seconds(text, video)
    if unit == "frames":
        return value / document.rate(video)
    return value if ":" in text else value * scale


def _check_thousands(document: Document, written: Mapping[str, list[str]]) -> None:
    """Refuse times such as 990 and then 1,005, which would be read as a second."""
    signed = [text for texts in written.values() for text in texts if re.search("[.,]", text)]
    for texts in written.values() if all(map(_THOUSANDS.fullmatch, signed)) else ():
        marked = [text in signed for text in texts]
        before, behind = texts[: marked.count(False)], texts[marked.count(False) :]
        ordered = marked == sorted(marked) and before and behind
        if (
            ordered
            and before[-1].isdecimal()
            and int(before[-1]) > float(behind[0].replace(",", "."))
        ):
            fault = f"seems to have thousands separators, as '{behind[0]}' after '{before[-1]}'"
            raise document.wrong(f"{fault}. Write times without them.")


def _is_parquet(document: Document) -> bool:
    return document.path.suffix.lower() in _ENDINGS or document.data.startswith(b"PAR1")


def _is_named(document: Document) -> bool:
    """Whether the columns are those of a table of steps, or chosen."""
    chosen = bool(document.choices.columns)
    return not STRUCTURED.match(document.head) and (chosen or document.columns >= _NEEDED)


def _table(document: Document, first: Mapping[str, Any]) -> _Table:
    """Find the columns and their units by the names and the first line of a table."""
    path, choices = document.path, document.choices
    ours = (*COLUMNS, *_FREE)
    if unknown := [column for column in choices.columns if column not in ours]:
        raise DataError(f"column '{unknown[0]}' is not needed. {SHAPE}", setting="column")
    chosen = {name: theirs.strip().casefold() for name, theirs in choices.columns.items()}
    tool = next((tool for tool in TOOLS if tool.names(first)), None)
    if first.keys() >= _NEEDED:
        tool = None
    names = {name: name for name in ours if name in first and name != "tier"}
    names |= (tool.names(first) if tool else {}) | chosen
    if tool is not None:
        document.notes[f"tables of the form of {tool.name}"] += 1
    if "end" in names and "duration" not in chosen:
        names.pop("duration", None)
    elif "duration" in chosen and "end" not in chosen:
        names.pop("end", None)
    alone = names.get("end", names.get("start")) == names.get("start") and "duration" not in names
    cells = {name: str(cell).strip() for name, cell in first.items() if cell is not None}
    others = [name for name in cells if name not in names.values() and is_number(cells[name])]
    needed = {"step", "start"} | ({"end"} if alone and "end" not in names and others else set())
    needed |= set() if choices.by_file or tool else {"video"}
    tasks = choices.task or choices.task_pattern or choices.video_table
    needed |= set() if tasks or tool else {"task"}
    if absent := [
        name
        for name in ours
        if names.get(name, name if name in needed else None) not in (*first, None)
    ]:
        raise _missing(document, first, {name: names.get(name, name) for name in absent})
    if choices.by_file and "video" in names and tool is None:
        problem = "is a table, which names its videos. Leave it out"
        raise document.wrong(f"{problem}.", setting="by_file")
    if _LENGTHS.search(names.get("end", "")):
        problem = f"{path}: the column '{names['end']}' holds lengths. Give duration=NAME, not end="
        raise DataError(f"{problem}NAME.", setting="column")
    if alone:
        names.pop("end", None)
    return _Table(names, _units(document, names), alone, tool)


def _units(document: Document, names: Mapping[str, str]) -> dict[str, str]:
    """Return the units that names of columns have; both ends have the same."""
    units = {
        ours: next(
            (
                unit
                for unit, _, words in _UNITS
                if words.search(names[ours]) and not _CLOCK.search(names[ours])
            ),
            "",
        )
        for ours in ("start", "end", "duration")
        if ours in names
    }
    for ours, unit in units.items():
        if unit == "samples":
            problem = f"{document.path}: the column '{names[ours]}' holds no seconds. Give them"
            raise DataError(f"{problem}, or frames or milliseconds.", setting="column")
    both = units["start"], units.get("end", units["start"])
    if both[0] != both[1]:
        columns = f"of the columns '{names['start']}' and '{names['end']}'"
        problem = f"{columns}, one counts {both[0] or both[1]}. Give both in one unit"
        raise DataError(f"{document.path}: {problem}.", setting="column")
    for unit in filter(None, units.values()):
        document.notes[f"columns of times in {unit}"] += 1
    return units


def _missing(document: Document, first: Mapping[str, Any], absent: Mapping[str, str]) -> DataError:
    """Say which columns a table lacks, and all ways to give them."""
    names = " and no column ".join(f"'{name}'" for name in absent.values())
    fault = f"{document.path}: has no column {names}, only {', '.join(filter(None, first))}"
    wanted = "its name" if len(absent) == 1 else "their names"
    for theirs in absent.values():
        if near := similar_names(theirs, [name for name in first if name and name not in COLUMNS]):
            meant = f"'{near[0]}'" + f" for '{theirs}'" * (len(absent) > 1)
            fault += f" (did you mean {meant}?)"
    remedy = f"Give {wanted} ({', '.join(f'{name}=NAME' for name in absent)})"
    remedy += ", or one task for all videos" * ("task" in absent)
    remedy += ", or name the video by the file" * ("video" in absent)
    if [*absent] == ["end"]:
        remedy += ", or duration=NAME, or end=START's name if each step lasts until the next one"
    remedy += ", or put a line with names first" * any(map(is_number, first))
    settings = ["column", *["task"] * ("task" in absent), *["by_file"] * ("video" in absent)]
    return DataError(f"{fault}. {remedy}.", setting=", ".join(settings))


def _cells(
    document: Document, table: _Table, lines: Iterator[tuple[str, dict[str, Any]]], faults: Faults
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line with its place and its stripped cells; `split` is empty without such a column."""
    for place, row in lines:
        cells = {
            column: "" if row[name] is None else " ".join(nfc(str(row[name])).split())
            for column, name in table.names.items()
        }
        if table.tool is not None and table.tool.steps[0]:
            column, value = table.tool.steps
            kind = str(row[column] or "").strip()
            if kind.casefold() != value:
                document.left_out[f"lines of the kind '{kind}'"] += kind.casefold() != "state stop"
                continue
        split = cells.get("split", "").casefold()
        empty = [name for name, cell in cells.items() if not cell and name not in _EMPTY]
        if empty:
            faults.add("empty", place, f"'{empty[0]}' is empty. Fill it in or remove the line.")
        elif split not in ("", *SPLITS):
            expected = ", ".join(SPLITS)
            faults.add("split", place, f"split is '{split}'; expected one of {expected}.")
        else:
            yield place, {**cells, "split": split}


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    install = f"Run {install_command('table')}, or save the table as CSV."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_binary(path, SHAPE)
    kinds = OSError, pyarrow.ArrowException
    with explained(path, "cannot be read as Parquet", SHAPE, *kinds):
        table = parquet.read_table(path)
    names = [column.strip().casefold() for column in table.column_names]
    check_columns(path, names)
    for number, row in enumerate(table.rename_columns(names).to_pylist()):
        yield f"{path}, row {number} (counted from 0)", row


def steps_table(videos: Sequence[Track]) -> str:
    """Return a table with the columns that the tracks fill; recognised times have milliseconds."""
    free = {
        "split": any(video.split for video in videos),
        "group": any(video.group for video in videos),
        "error": any(step.errors for video in videos for step in video.steps),
        "probability": any(video.recognised for video in videos),
    }
    heads, rows = ("video", "task", "step", "start", "end"), list[tuple[object, ...]]()
    for video in videos:
        for step in video.steps:
            times = (f"{time:.3f}" if video.recognised else time for time in (step.start, step.end))
            cells = {
                "split": video.split,
                "group": video.group,
                "error": ";".join(step.errors),
                "probability": f"{step.probability:.4f}",
            }
            kept = (cells[name] for name in free if free[name])
            rows.append((video.video, video.task, step.name, *times, *kept))
    return csv_text([(*heads, *(n for n in free if free[n])), *rows])


TABLES = (".csv", ".tsv", *_ENDINGS)
"""Endings of files that are tables."""
_declared = partial(Format, name="table of steps", read=read_table, tier="tier")
FORMATS = (
    _declared(endings=_ENDINGS, told=Told.FIRST_BYTES, recognises=_is_parquet),
    _declared(
        endings=(".csv", ".tsv"),
        told=Told.COLUMNS,
        recognises=_is_named,
        key="csv",
        write=steps_table,
    ),
    _declared(endings=(".txt",), told=Told.REST, recognises=lambda _: True),
)
