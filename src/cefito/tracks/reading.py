"""Annotated steps from files of any known format, one or many, as tracks of names.

What the files leave open (tier, task, split, frame rate, ends of videos) comes from `Choices`.
"""

from __future__ import annotations

import csv
import logging
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from operator import eq, mul
from pathlib import Path, PurePath
from typing import Any

from cefito.data.annotations import SPLITS
from cefito.data.robots import INFO
from cefito.data.vocabulary import nfc
from cefito.errors import CefitoError, ConfigError, DataError, explained
from cefito.files import read_bytes
from cefito.markup import (
    TIME_FORMS,
    Faults,
    counted,
    csv_rows,
    decoded,
    encoding_note,
    listed,
    listed_places,
    parse_seconds,
    step_times,
    table_start,
)
from cefito.tracks.document import (
    MAX_RATE,
    STRUCTURED,
    Choices,
    Document,
    Format,
    StepRow,
    Told,
    film_address,
    named_films,
)
from cefito.tracks.formats import FORMATS
from cefito.tracks.formats.table import SHAPE, TABLES
from cefito.tracks.track import TimedStep, Track, error_kinds, missing_step

_TABLE = "Expected the columns video and any of task, split, group, seconds and frame_rate."
_shown = partial(listed, most=12)
"""Names in a message."""
logger = logging.getLogger(__name__)
_DIGITS = 6  # of seconds
_ERRORS = "error", "errors", "mistake", "mistakes"  # names of the tier of errors
_TABULAR = re.compile(r"[^<{[].*[,;\t|]")
_LINES, _LETTERS = 10, 40  # in which the names of columns are looked for, and of a line in messages
_BEYOND = 1.5  # times the length of a video; what begins later is not in seconds
_ELAN = ".eaf"  # no other program writes such files
_WORKBOOKS = ".xlsx", ".xlsm", ".ods"
_FACTS = "task", "split", "group"  # of a video
_SPELLINGS, _KINDS = 4, 8  # of a name, and of errors, in a note
_HEAD = 1 << 16  # bytes by which a text is told from a film


@dataclass(frozen=True)
class Tracks:
    """Steps of annotation files; names are not bound to a taxonomy."""

    tracks: tuple[Track, ...]  # in the order in which the files name their videos
    actions: tuple[str, ...]  # names of steps in the order of the files
    name: str  # of the annotations
    form: str  # the files' formats
    notes: tuple[str, ...]  # on how the files were read, and what was left out
    tier: str = ""  # that holds the steps; empty if the files have none, or several
    unused: frozenset[str] = frozenset()  # videos of the table of videos that no file has


def read(paths: Sequence[Path], choices: Choices) -> Tracks:
    """Read files of steps, each of the format that its content has; also LeRobot data sets.

    Raises:
        DataError: A file of no known format, of one that is not read, malformed or without steps,
            or without what `choices` could give.
    """
    if not paths:
        raise ConfigError("no file is given. Give the files of annotated steps.")
    table = _VideoTable(choices.video_table)
    rows: list[StepRow] = []
    formats: dict[Format, list[Document]] = defaultdict(list)
    tiers: dict[Format, set[str]] = defaultdict(set)
    refused, own_choices = list[DataError](), choices_of_each(paths, choices)
    for path in paths:
        document = Document(file_to_read(path), own_choices[Path(path)], table.rate)
        try:
            used = next(kind for kind in FORMATS if kind.matches(document))
            document_rows = _one_tier(document, used, _read(document, used))
        except DataError as problem:
            if problem.setting:  # asks for an option, which is of all files
                raise
            refused.append(problem)
            continue
        formats[used].append(document)
        tiers[used].update(row.tier for row in document_rows)
        rows += table.completed(document, document_rows)
    table.check_task()
    documents = [document for files in formats.values() for document in files]
    empty = [document.empty for document in documents if document.empty is not None]
    refused += [error for _, error in empty if len(empty) == len(documents)]
    if len(refused) > 1:
        others = [str(error).partition(": ")[0] for error in refused[1:]]
        said = f"{refused[0]} Refused as well: {_shown(others)}."
        raise DataError(said, setting=refused[0].setting) from refused[0]
    if refused:
        raise refused[0]
    rows, apart = named_films(rows)
    rows, repeated = _distinct(rows)
    notes = [note for used, files in formats.items() for note in _notes(used, files, tiers[used])]
    notes += [*_lacking(own_choices, choices), *apart, *table.notes(), *repeated]
    if kinds := Counter(kind for row in rows for kind in row.errors):
        counts = (f"'{kind}' {count}" for kind, count in kinds.most_common())
        notes.append(f"Steps with an error, by kind: {listed(counts, most=_KINDS)}.")
    form = ", ".join(dict.fromkeys(used.name for used in formats))
    if not rows:
        remedy = notes[-1] if notes else SHAPE
        raise DataError(f"{paths[0]} ({form}): holds no steps. {remedy}")
    whole = paths[0].absolute()
    single = nfc((whole.parents[1] if whole.as_posix().endswith(INFO) else whole).stem)
    name = single if len(paths) == 1 else nfc(paths[0].resolve().parent.name) or single
    actions = tuple(dict.fromkeys(row.step for row in rows))
    used_tiers = set().union(*tiers.values())
    tier = used_tiers.pop() if len(used_tiers) == 1 else ""
    return Tracks(_tracks(rows), actions, name, form, tuple(notes), tier, table.unused)


def choices_of_each(paths: Iterable[object], choices: Choices) -> dict[Path, Choices]:
    """Return the choices for each file: a table lacks names of columns that only others have.

    Args:
        paths: The files, among other things.
        choices: What all of them leave open.
    """
    columns = {Path(path): frozenset[str]() for path in paths if isinstance(path, str | Path)}
    for path in columns if choices.columns else ():  # of tables of text
        if path.suffix.lower() in (".csv", ".tsv") and path.is_file():
            with suppress(DataError):
                columns[path] = Document(path, choices, lambda _: None).columns
    names = {ours: theirs.strip().casefold() for ours, theirs in choices.columns.items()}
    own_choices, known = dict[Path, Choices](), frozenset[str]().union(*columns.values())
    for path, own in columns.items():
        others = own and known - own
        kept = {ours: choices.columns[ours] for ours in names if names[ours] not in others}
        own_choices[path] = choices.model_copy(update={"columns": kept})
    return own_choices


def read_each(
    paths: Sequence[Path],
    choices: Choices,
    failed: Callable[[CefitoError], object],
    beside: Iterable[object] = (),
) -> list[tuple[Path, Tracks]]:
    """Read files, each by itself; videos of the table that none has are noted once, at the last.

    Args:
        paths: The files.
        choices: What they leave open.
        failed: Is given the error of a file that is left out.
        beside: Files of the same choices that are read elsewhere.
    """
    each, table = list[tuple[Path, Tracks]](), choices.video_table
    own_choices = choices_of_each([*paths, *beside], choices)
    for path in paths:
        try:
            each.append((path, read([path], own_choices[path])))
        except (ConfigError, DataError) as problem:
            failed(problem)
    unused = frozenset.intersection(*(tracks.unused for _, tracks in each)) if each else frozenset()
    for place, (path, tracks) in enumerate(each, 1):
        own = _lacking(own_choices, choices) if place == 1 else []
        own += [n for n in tracks.notes if n not in _without_steps(table, tracks.unused)]
        own += _without_steps(table, unused) if place == len(each) else []
        each[place - 1] = path, replace(tracks, notes=tuple(own))
    return each


def _lacking(own_choices: Mapping[Path, Choices], choices: Choices) -> list[str]:
    """Say which tables lack names of columns that others have."""
    return [
        f"{path.name}: has no column '{theirs}', which another table has."
        for path, own in own_choices.items()
        for ours, theirs in choices.columns.items()
        if ours not in own.columns
    ]


def _without_steps(table: Path | None, unused: frozenset[str]) -> list[str]:
    """Say that a table of videos has some without steps; nothing if there are none."""
    if table is None or not unused:
        return []
    videos = counted(len(unused), "video")
    return [f"{table.name}: no steps in {videos}, such as '{min(unused)}'."]


def in_one_spelling(tracks: Tracks) -> Tracks:
    """Write tasks and steps whose names differ in case alone as the first one, with a note."""
    tasks, steps = dict[str, dict[str, None]](), dict[str, dict[str, None]]()
    for spellings, names in (
        (tasks, [track.task for track in tracks.tracks]),
        (steps, tracks.actions),
    ):
        for name in names:
            spellings.setdefault(name.lower(), {})[name] = None
    first = {name: next(iter(alike)) for alike in steps.values() for name in alike}
    notes = [
        f"one {kind}, as names differ in case alone: {listed(map(repr, alike), most=_SPELLINGS)}"
        for kind, spellings in (("task", tasks), ("step", steps))
        for alike in spellings.values()
        if len(alike) > 1
    ]
    changed = tuple(
        track.model_copy(
            update={
                "task": next(iter(tasks[track.task.lower()])),
                "steps": tuple(
                    step.model_copy(update={"name": first[step.name]}) for step in track.steps
                ),
            }
        )
        for track in tracks.tracks
    )
    actions = tuple(dict.fromkeys(first.values()))
    return replace(tracks, tracks=changed, actions=actions, notes=(*tracks.notes, *notes))


def file_to_read(path: Path) -> Path:
    """Return the file by which a LeRobot data set is read; another path as it is."""
    return file if (file := path / INFO).is_file() else path


def _tracks(rows: Iterable[StepRow]) -> tuple[Track, ...]:
    """Join the rows of each video, which agree on its task, split and file."""
    videos: dict[str, tuple[StepRow, list[TimedStep]]] = {}  # with the first row of each
    faults, twice = Faults(), defaultdict[tuple[str, str], dict[str, None]](dict)
    for row in rows:
        first, steps = videos.setdefault(row.video, (row, []))
        differing = [
            name for name in _FACTS if getattr(row, name).lower() != getattr(first, name).lower()
        ]
        if differing:
            here, before = (
                ", ".join(f"{name} '{getattr(line, name)}'" for name in differing)
                for line in (row, first)
            )
            problem = f"video '{row.video}' has {here}, but before {before}. Correct the line."
            faults.add(f"facts of {row.video}: {here}", row.place, problem)
        elif row.origin != first.origin:
            twice[row.origin, first.origin][f"'{row.video}'"] = None
        try:
            start, end = step_times(row.start, row.end, place=row.place)
        except DataError as problem:
            faults.add("times", row.place, str(problem).removeprefix(f"{row.place}: "))
            continue
        steps.append(TimedStep(name=row.step, start=start, end=end, errors=row.errors))
    faults.check()
    for (origin, before), names in twice.items():
        both = f"annotates video {_shown(names)}, as {before} does"
        raise DataError(f"{origin}: {both}. Leave one file out, or join them.")
    return tuple(
        Track(
            video=video,
            task=first.task,
            seconds=max(step.end for step in steps),
            steps=tuple(sorted(steps, key=lambda step: (step.start, step.end))),
            recognised=False,
            split=first.split,
            group=first.group,
        )
        for video, (first, steps) in videos.items()
    )


def holds_steps(path: Path) -> bool:
    """Return whether a file has an ending of files of annotated steps, or is another text."""
    named = path.suffix.lower() in {ending for kind in FORMATS for ending in kind.endings}
    if not path.is_file():
        return named
    with path.open("rb") as file:
        head = file.read(_HEAD)
    try:
        return named or bool(decoded(head, path)[0])
    except DataError:  # a binary file; workbooks are refused, with a remedy
        return named or head.startswith(b"PAR1") or _is_workbook(path)


def _is_workbook(path: Path) -> bool:
    return path.suffix.lower() in _WORKBOOKS and zipfile.is_zipfile(path)


def _form_of(path: Path, columns: Mapping[str, str]) -> tuple[Document, Format]:
    """Return a file and its form; a table that has all chosen columns is one of steps."""
    document = Document(path, Choices(), lambda _: None)
    chosen = {name.strip().casefold() for name in columns.values()}
    if chosen and path.suffix.lower() in TABLES and chosen <= document.columns:
        document.choices = Choices(columns=columns)
    form = next(kind for kind in FORMATS if kind.matches(document))
    if form.told is Told.REST and path.suffix.lower() == _ELAN:
        problem = "is empty or damaged: it holds nothing of ELAN"
        raise DataError(f"{path}: {problem}. Save it again, or remove it.")
    return document, form


def find_steps(
    folder: Path, *, but: str = "", columns: Mapping[str, str] = {}, films: Collection[str] = ()
) -> list[Path]:
    """Return the files of annotated steps below a folder, which are of one form.

    A table with other names of columns counts if there is nothing else, they are chosen, or several
    of its lines name one film.

    Args:
        folder: The folder.
        but: Name of files that never count.
        columns: A table's own names of columns, by the expected ones.
        films: Names of films, without endings.

    Raises:
        DataError: No such file, or files of several forms.
    """
    if not folder.exists():
        problem = "no such file or folder. Give files of labels, or their folder"
        raise DataError(f"{folder}: {problem}.", setting="labels")
    forms: dict[str, list[Path]] = defaultdict(list)
    others, workbooks = dict[Path, frozenset[str]](), list[Path]()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if any(name.startswith(".") for name in inside) or path.name == but or not path.is_file():
            continue
        if _is_workbook(path):
            workbooks.append(path)
            continue
        if not holds_steps(path):
            continue
        document, form = _form_of(path, columns)
        if form.told is not Told.REST or _names_films(document, films):
            forms[form.name].append(path)
        elif path.suffix.lower() in TABLES:
            others[path] = document.columns
    if len(forms) > 1:
        said = (f"{form} ({_shown(path.name for path in paths)})" for form, paths in forms.items())
        problem = f"{folder}: holds labels of {len(forms)} forms: {'; '.join(said)}"
        remedy = "Give the file of one form, or a folder with files of one form alone"
        join = "to use all, join them first: cefito data steps FILES --out STEPS.csv"
        raise DataError(f"{problem}. {remedy}; {join}.", setting="labels")
    files = next(iter(forms.values()), [*others])
    facts = {"video", *_Facts.__annotations__}
    unnamed = [path.name for path, names in others.items() if not names <= facts]
    if forms and unnamed:
        problem = "the columns are not named as in a table of steps"
        logger.warning("%s: left out: %s (--column names them)", _shown(unnamed), problem)
    if not files and workbooks:
        decoded(read_bytes(workbooks[0], "Save it as CSV."), workbooks[0])  # refuses it
    if not files:
        remedy = "Export them into it from the annotation tool, or name them"
        raise DataError(f"{folder}: holds no labels of steps. {remedy}.", setting="labels")
    return files


def _names_films(document: Document, films: Collection[str]) -> bool:
    """Whether several lines of a table name one film."""
    named = Counter[str]()
    if films and document.path.suffix.lower() in TABLES:
        with suppress(DataError):
            for _, row in csv_rows(document.text, document.path, SHAPE):
                cells = (nfc(str(cell).strip()) for cell in row.values())
                named.update({cell for cell in cells for cell in (cell, PurePath(cell).stem)})
    return any(named[film] > 1 for film in films)


def _distinct(rows: list[StepRow]) -> tuple[list[StepRow], list[str]]:
    """Leave out repeated steps, with a note that names them."""
    kept: dict[object, StepRow] = {}
    repeated = [
        row.place
        for row in rows
        if kept.setdefault((row.video, row.step, row.start, row.end, row.task, row.split), row)
        is not row
    ]
    if not repeated:
        return rows, []
    steps, places = counted(len(repeated), "repeated step"), listed_places(repeated)
    alike = "with the action and the times of another of the same video"
    note = f"Left out {steps}, {alike}: {places}."
    return [*kept.values()], [note]


def _read(document: Document, used: Format) -> list[StepRow]:
    """All rows of a document with a label, in whole microseconds."""
    if used.read is None:
        raise document.wrong(f"is {used.name}, which is not read. {used.remedy}")
    if not used.step:
        head = document.head if used is FORMATS[-1] else ""
        first, *others = head[table_start(head)[0] :].lstrip().split("\n")[:_LINES]
        if first and not _TABULAR.match(first):  # no table either
            names = ", ".join(dict.fromkeys(kind.name for kind in FORMATS if kind.step))
            problem = f"is of no known format ({names}). Give one of these, or a table of steps"
            if not STRUCTURED.match(head) and any(map(_TABULAR.match, others)):
                problem = f"has {first.strip()[:_LETTERS]!r} above the names of columns. Remove it"
            raise DataError(f"{document.path}: {problem}.")
        lines = list(used.read(document))
        if not lines:
            said = f"{document.path} ({used.name}): holds no steps. {SHAPE}"
            document.empty = "hold no steps", DataError(said)
        return lines
    document.format = used.name
    if document.choices.columns:
        document.notes["of the files are no tables, so names of columns do not count there"] += 1
    complaint, remedy = "is damaged or not whole", "Export it again."
    kinds = LookupError, ValueError, TypeError, AttributeError, ArithmeticError, csv.Error
    with explained(document.place(), complaint, remedy, RecursionError, *kinds):
        unchecked = list(used.read(document))
    rows, faults = [], Faults()
    for row in unchecked:
        label, task = (" ".join(nfc(text).split()) for text in (row.step, row.task))
        split = row.split.strip().casefold()
        if split not in ("", *SPLITS):
            expected = ", ".join(SPLITS)
            faults.add("split", row.place, f"split is '{row.split}'; expected one of {expected}.")
        if not label:
            document.left_out[f"{used.step}s without a label"] += 1
            continue
        start, end = round(row.start, _DIGITS), row.end
        end = None if end is None else round(end, _DIGITS)
        coding = document.place(row.coding)
        facts: dict[str, Any] = {"task": task, "split": split, "coding": coding}
        rows.append(replace(row, step=label, start=start, end=end, **facts))
    faults.check()
    if not rows:
        only = _left_out([document])
        what = f"no {used.step} with a label"
        error = document.wrong(f"holds {what}{only and f', only {only}'}. {document.remedy}")
        document.empty = f"hold {what}", error
    return rows


def _one_tier(document: Document, used: Format, rows: list[StepRow]) -> list[StepRow]:
    """The rows of the chosen tier, or of the only one beside that of errors."""
    wanted = document.choices.tier
    rows, errors = _without_errors(document, used, rows)
    counts = Counter(row.tier for row in rows)
    if counts.keys() <= {""} and (wanted or not used.tier):
        if wanted is not None:
            raise document.wrong("has no tiers to choose from. Leave it out.", setting="tier")
        return rows
    shown = _shown([f"'{name}' ({count})" for name, count in counts.most_common()])
    if wanted is not None and rows and wanted not in counts:
        what, left_out = f"no {used.tier} '{wanted}'", _left_out([document])
        also = f" (left out: {left_out})" if left_out else ""
        error = document.wrong(f"has {what}, only {shown}{also}.", setting="tier")
        document.empty = f"have {what}", error
    if wanted is None and len(counts) > 1:
        problem = f"has {len(counts)} {used.tier}s: {shown}. Choose the one with the steps"
        raise document.wrong(f"{problem}.", setting="tier")
    chosen = [row for row in rows if wanted is None or row.tier == wanted]
    return _with_errors(document, chosen, errors) if errors else chosen


def _without_errors(
    document: Document, used: Format, rows: list[StepRow]
) -> tuple[list[StepRow], list[StepRow]]:
    """Return the rows of other tiers, and those of the tier of errors."""
    wanted, tiers = document.choices.error_tier, {row.tier for row in rows}
    if wanted is not None and wanted not in tiers:
        named = _shown([f"'{tier}'" for tier in sorted(tiers) if tier]) or "none"
        problem = f"has no {used.tier or 'tier'} '{wanted}' with errors, only {named}"
        raise document.wrong(f"{problem}.", setting="error_tier")
    named_so = {tier for tier in tiers if tier.casefold() in _ERRORS}
    chosen = {wanted} if wanted else named_so - {document.choices.tier}
    if not tiers - chosen:  # steps are named so
        return rows, []
    others = [row for row in rows if row.tier not in chosen]
    return others, [row for row in rows if row.tier in chosen]


def _with_errors(document: Document, rows: list[StepRow], errors: list[StepRow]) -> list[StepRow]:
    """Return steps with their errors: each is of the step of its video that it overlaps most."""
    kinds: dict[int, list[str]] = defaultdict(list)
    for error in errors:
        shared = {
            place: min(row.end, error.end) - max(row.start, error.start)
            for place, row in enumerate(rows)
            if row.video == error.video and row.end is not None and error.end is not None
        }
        place = max(shared, key=lambda place: shared[place], default=None)
        said = error_kinds(error.step)
        if place is None or shared[place] <= 0:  # a missing step may be between two others
            kept = tuple(kind for kind in said if place is not None and missing_step(kind))
            document.left_out["errors at no step"] += kept != said
            said = kept
        if place is not None:
            kinds[place] += [kind for kind in said if kind not in kinds[place]]
    if wrong := sum(map(bool, kinds.values())):
        document.notes[f"steps with an error, by '{errors[0].tier}'"] += wrong
    return [replace(row, errors=(*row.errors, *kinds[at])) for at, row in enumerate(rows)]


def _left_out(files: Sequence[Document]) -> str:
    """What was left out, in words."""
    counts = sum((document.left_out for document in files), Counter[str]())
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _notes(used: Format, files: list[Document], tiers: set[str]) -> Iterable[str]:
    """Sentences on how files were read, what was left out, and a guessed encoding."""
    for document in files:
        if document.read_as:
            said = encoding_note(document.path, document.read_as)
            yield f"{said} If letters are wrong, give its encoding."
    read = [document for document in files if document.empty is None]
    more = f" and {len(read) - 1} more" if len(read) > 1 else ""
    named = ", ".join(f"'{name}'" for name in sorted(tiers) if name)
    of = f" of the {used.tier} {named}" if named else ""
    if read and used.step:
        yield f"{read[0].path.name}{more}: {used.name}; each {used.step}{of} is a step."
    for what, count in sum((document.notes for document in read), Counter[str]()).items():
        yield f"{used.name}: {count} {what}."
    if left_out := _left_out(files):
        yield f"{used.name}: left out {left_out}."
    empty: dict[str, list[str]] = defaultdict(list)
    for document in files:
        if document.empty is not None:
            empty[document.empty[0]].append(str(document.path))
    for what, names in empty.items():
        yield f"{used.name}: left out, since they {what}: {', '.join(names)}."


def groups(table: Path | None) -> Callable[[str], str]:
    """Return what gives the group of a film by its path, as a table of videos has it, or none."""
    videos = _VideoTable(table)
    return lambda film: videos.facts(film).group


@dataclass(frozen=True)
class _Facts:
    """What a table of videos says about one."""

    task: str = ""
    split: str = ""
    group: str = ""
    seconds: float | None = None
    frame_rate: float | None = None


_NOTHING = _Facts()


class _VideoTable:
    """A table with task, split, length and frame rate of videos, which annotations may lack."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._facts: dict[str, _Facts] = {}
        self._named: dict[str, list[str]] = defaultdict(list)  # addresses by their last part
        self._row_of: dict[str, str] = {}  # of each film that was looked up, if there is one
        self._film_of: dict[str, str] = {}
        self._dropped = 0
        self._clashes, self._lacking = list[DataError](), False  # with the task of all
        self._said = ""
        rows: Iterable[tuple[str, dict[str, Any]]] = ()
        if path is not None:
            text, read_as = decoded(read_bytes(path, _TABLE), path)
            self._said, rows = encoding_note(path, read_as), csv_rows(nfc(text), path, _TABLE)
        for place, row in rows:
            cells = {name: " ".join(nfc(cell or "").split()) for name, cell in row.items()}
            video, split = film_address(cells.get("video", "")), cells.get("split", "").casefold()
            facts = {"task", "split", "group", "seconds", "frame_rate"} & cells.keys()
            if not video or not facts or video in self._facts:
                problem = "repeats a video" if video in self._facts else "names no video or no fact"
                raise self._refused(place, f"{problem}. {_TABLE}")
            if split not in ("", *SPLITS):
                expected = ", ".join(SPLITS)
                raise self._refused(place, f"split is '{split}'; expected one of {expected}.")
            with explained(place, "holds no number", TIME_FORMS, setting="video_table"):
                seconds, rate = (
                    parse_seconds(cells[name]) if cells.get(name) else None
                    for name in ("seconds", "frame_rate")
                )
            if rate is not None and not 0 < rate <= MAX_RATE:
                expected = f"expected at most {MAX_RATE:,}"
                raise self._refused(place, f"{rate:g} frames per second; {expected}.")
            group = cells.get("group", "")
            self._facts[video] = _Facts(cells.get("task", ""), split, group, seconds, rate)
            self._named[video.rpartition("/")[2]].append(video)

    @staticmethod
    def _refused(place: object, problem: str) -> DataError:
        return DataError(f"{place}: {problem}", setting="video_table")

    def rate(self, video: str) -> float | None:
        """Frames per second of a video, if the table has them."""
        return self.facts(video).frame_rate

    def facts(self, video: str) -> _Facts:
        """Find the row with the longest end in common with a video's address; one video a row."""
        if video not in self._row_of:
            parts = film_address(video).split("/")
            alike = {
                row: sum(accumulate(map(eq, reversed(parts), reversed(row.split("/"))), mul))
                for row in self._named.get(parts[-1], ())
            }
            best = [row for row, count in alike.items() if count == max(alike.values())]
            others = [self._film_of.setdefault(row, video) for row in best[:1]]
            if len(best) > 1 or others not in ([], [video]):
                clash = f"{_shown(best)} for {_shown(dict.fromkeys([*others, video]))}"
                problem = f"cannot tell videos with the same file name apart, {clash}"
                raise self._refused(self._path, f"{problem}. Write them with their folders.")
            self._row_of[video] = best[0] if best else ""
        return self._facts.get(self._row_of[video], _NOTHING)

    def completed(self, document: Document, rows: list[StepRow]) -> list[StepRow]:
        """Add task, split and end to the rows; drop rows whose end is unknown."""
        choices = document.choices
        kept = []
        for row in rows:
            facts = self.facts(row.video)
            task = choices.task_of(row.video) or facts.task
            if row.task and task and row.task.lower() != task.lower():
                chosen = [name for name in ("task", "task_pattern") if getattr(choices, name)]
                setting = (*chosen, "video_table")[0]
                problem = f"holds the task '{row.task}', not '{task}'. Leave that out"
                refused = DataError(f"{row.place}: {problem}.", setting=setting)
                if setting != "task":
                    raise refused
                self._clashes.append(refused)
            self._lacking |= not row.task
            if not row.task and not task:
                raise self._no_task(document, row)
            end = facts.seconds if row.end is None else row.end
            if end is None:
                self._dropped += 1
                continue
            if facts.seconds and row.start > _BEYOND * facts.seconds:
                problem = f"begins at {row.start:g} s of a video of {facts.seconds:g} s"
                raise DataError(f"{row.place}: {problem}. Correct its unit.", setting="video_table")
            split, group = row.split or facts.split, row.group or facts.group
            named: dict[str, Any] = {"task": row.task or task, "split": split, "group": group}
            kept.append(replace(row, **named, end=end, origin=document.place()))
        return kept

    def check_task(self) -> None:
        """Refuse a task of all videos that none of the files lacks, and one of them contradicts."""
        if self._clashes and not self._lacking:
            raise self._clashes[0]

    def _no_task(self, document: Document, row: StepRow) -> DataError:
        if self._path is not None:
            video = row.video.rpartition("/")[2]
            problem = f"names no task of video '{video}'. Add it, or one task for all"
            return DataError(f"{self._path}: {problem}.", setting="task")
        remedy = (
            "Give one for all videos, a pattern that finds it in their names, or a table with the"
        )
        problem = f"holds no task. {remedy} columns video and task."
        return document.wrong(problem, setting="task, task_pattern, video_table")

    @property
    def unused(self) -> frozenset[str]:
        """Videos of rows that were not looked up."""
        return frozenset(self._facts.keys() - set(self._row_of.values()))

    def notes(self) -> Iterable[str]:
        """Rows of the table without steps, and steps without an end."""
        if self._said:
            yield self._said
        yield from _without_steps(self._path, self.unused)
        if self._dropped:
            steps = counted(self._dropped, "step")
            yield (
                f"Left out, since the end of their video is unknown: {steps}. To keep them, give "
                "the length of each video (a table with the columns video and seconds)."
            )
