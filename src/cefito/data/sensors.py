"""Tables of sensors: values with time stamps, of which rows at a constant rate are made.

Of each channel, row i holds mean, spread (standard deviation) and slope (of the least-squares line,
a second) of the values from i / rate to (i + 1) / rate. A row without a value holds the last value,
with spread and slope 0. Each number is scaled by its median and interquartile range in the rows of
training videos; before the first value of a video it is 0, the median. A channel that has no value
in more than 5 % of training rows has a fourth number, 1 in its rows without a value.

Nothing depends on later values, so that rows can be made while a procedure goes on.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cefito.data.annotations import Video
from cefito.data.prepared import open_dataset
from cefito.data.robots import RobotDataset, episode_name, find_episode, is_robot, open_robot
from cefito.data.source import Source
from cefito.data.timeline import RATES
from cefito.data.vocabulary import nfc
from cefito.errors import DataError
from cefito.files import file_names, has_ending, read_bytes, write_json
from cefito.markup import check_columns, counted, decoded, listed, table_start
from cefito.settings import Record, parse_record

Floats = NDArray[np.float64]

_ENDINGS = (".csv", ".tsv", ".txt")
_TIME = re.compile(r"(?:time|timestamp|t|date_?time|seconds)(?:[ _(\[]*(s|ms|us|µs|ns)[)\]]?)?")
_SCALES = {None: 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NO_VALUE = ("", "-", "na", "n/a", "nan", "null", "none")
_AT_ONCE = 1 << 14  # lines
_LATEST = 1e7  # seconds of a video; later times are those of a clock, such as Unix times
_MILLISECONDS = 1e11  # a Unix time that is later
_MOST_ROWS = 10_000_000
_OFTEN = 0.05  # share of training rows without a value from which on a number tells of them
_CLIPPED = 1000.0
_FINER = 300  # times the end of the last step: times that late have another unit
_SHOWN = 5
_EXPECTED = (
    "Expected a column time (seconds, or dates and times as 2026-05-02T10:15:30.5) and one column "
    "of numbers for each channel."
)


@dataclass(frozen=True, eq=False)
class SensorValues:
    """The values of one table: all its channels have the same time stamps."""

    path: Path
    channels: tuple[str, ...]  # C names
    times: Floats  # [n], ascending: seconds of the video, or of a clock
    values: Floats  # [n, C]; NaN without a value

    @property
    def clock(self) -> bool:
        """Whether times are of a clock, and count from the first one of the video."""
        return bool(self.times[0] > _LATEST)


class SensorRecipe(Record):
    """How rows are made of the tables of a video; kept with data sets and runs."""

    channels: tuple[str, ...] = Field(min_length=1)
    rate: float = Field(ge=RATES[0], le=RATES[1])  # rows a second
    lacking: tuple[int, ...]  # channels with a fourth number, by place
    medians: tuple[float, ...]  # of the D numbers of a row
    scales: tuple[Annotated[float, Field(gt=0)], ...]  # their interquartile ranges [D]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        count, width = len(self.channels), 3 * len(self.channels) + len(self.lacking)
        if {*self.lacking} - {*range(count)} or {len(self.medians), len(self.scales)} != {width}:
            raise ValueError(f"expected {width} medians and scales of {count} channels")
        return self

    @classmethod
    def fit(cls, channels: Sequence[str], rate: float, videos: Sequence[Floats]) -> Self:
        """Measure the numbers of training videos.

        Args:
            channels: Names of the C channels.
            rate: Rows a second.
            videos: `unscaled` numbers of each video [n, C, 4].
        """
        rows = np.concatenate(videos)
        lacking = np.flatnonzero(rows[:, :, 3].mean(axis=0) > _OFTEN).tolist()
        columns = _chosen(rows, lacking).T
        middle, scales = np.zeros(len(columns)), np.ones(len(columns))
        for place, column in enumerate(columns[: 3 * len(channels)]):
            numbers = column[np.isfinite(column)]
            if len(numbers):
                low, middle[place], high = np.percentile(numbers, [25, 50, 75])
                scales[place] = high - low or numbers.std() or 1.0
        return cls(
            channels=tuple(channels),
            rate=rate,
            lacking=tuple(lacking),
            medians=tuple(middle.tolist()),
            scales=tuple(scales.tolist()),
        )

    def rows(self, path: Path | str) -> NDArray[np.float32]:
        """Make the rows [n, D] of a video: a table, or a folder of tables (DataError)."""
        return self.scaled(unscaled(read_tables(Path(path), self.channels), self))

    def scaled(self, numbers: Floats) -> NDArray[np.float32]:
        """Return the rows [n, D] of unscaled numbers [n, C, 4]."""
        rows = (_chosen(numbers, self.lacking) - self.medians) / self.scales
        return np.nan_to_num(rows, nan=0.0).clip(-_CLIPPED, _CLIPPED).astype(np.float32)

    def reads(self, path: Path) -> bool:
        """Return whether a path is a folder, an episode, or a table that holds the channels."""
        if find_episode(path) is not None:
            return True
        if path.is_dir() or not (has_ending(path, _ENDINGS) and path.is_file()):
            return path.is_dir()
        with path.open("rb") as file:
            head, _ = decoded(file.read(1 << 16).rpartition(b"\n")[0], path)
        return {*self.channels} <= {*_header(head, path)[0]}


def recipe_of(entry: Any) -> SensorRecipe:
    """Return the recipe of the entry `sensors` in the record of how features were made."""
    place, remedy = "recipe of the rows of sensors", "Prepare the data set again."
    return parse_record(SensorRecipe, json.dumps(entry), f"{place}: damaged", remedy, DataError)


def _chosen(numbers: Floats, lacking: Sequence[int]) -> Floats:
    """Return three numbers of each channel, and the fourth ones of some, of [n, C, 4]."""
    usual = numbers[:, :, :3].reshape(len(numbers), -1)
    return np.concatenate([usual, numbers[:, list(lacking), 3]], axis=1)


def read_tables(path: Path, channels: Sequence[str] | None = None) -> list[SensorValues]:
    """Read the tables of a video.

    Args:
        path: A table, or a folder of tables, whose channels are then named TABLE.COLUMN.
        channels: Channels that must be there, others are left out; all by default.

    Raises:
        DataError: No table, time stamps that are missing, not in order or not of one clock, cells
            that hold no numbers, or no such channel.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if has_ending(file, _ENDINGS))
    prefixes = [f"{nfc(file.stem).casefold()}." * path.is_dir() for file in files]
    if (episode := find_episode(path)) is not None:
        read = iter([_of_episode(path, *episode, channels)])
    else:
        read = (_table(*pair, channels) for pair in zip(files, prefixes, strict=True))
    tables = [table for table in read if table.channels]
    names = [name for table in tables for name in table.channels]
    missing = [name for name in channels or () if name not in names]
    if missing or not tables:
        lacks = f"has no channel {listed(missing, most=_SHOWN)}" if missing else "has no channel"
        raise DataError(f"{path}: {lacks}. {_EXPECTED}")
    if len({table.clock for table in tables}) > 1:
        problem = "some tables hold times of a clock, others seconds. Give all of one kind"
        raise DataError(f"{path}: {problem}.")
    first = min(float(table.times[0]) for table in tables) if tables[0].clock else 0.0
    tables = [replace(table, times=table.times - first) for table in tables]
    if (last := _end(tables)) > _LATEST:
        raise DataError(f"{path}: ends {last:g} s after its begin. Give time stamps in seconds.")
    return tables


def _of_episode(
    path: Path, robot: RobotDataset, number: int, wanted: Sequence[str] | None
) -> SensorValues:
    """Read the channels of an episode of a LeRobot data set that are wanted."""
    names = tuple(name for name in robot.channels if wanted is None or name in wanted)
    times, values = robot.values(number, names)
    return SensorValues(path, names, times, np.where(np.isfinite(values), values, np.nan))


def _end(tables: Iterable[SensorValues]) -> float:
    return max(float(table.times[-1]) for table in tables)


def _header(text: str, path: Path) -> tuple[list[str], int, str]:
    """Return the names of columns, where the line with them begins, and the separator."""
    start, delimiter = table_start(text)
    names = next(csv.reader([text[start:].partition("\n")[0]], delimiter=delimiter), [])
    columns = [nfc(name).strip().casefold() for name in names]
    check_columns(path, columns)
    return columns, start, delimiter


def _table(path: Path, prefix: str, wanted: Sequence[str] | None) -> SensorValues:
    """Read one table; of its channels, named with a prefix, those that are wanted."""
    text, _ = decoded(read_bytes(path, _EXPECTED), path)
    columns, start, delimiter = _header(text, path)
    clocks = [place for place, name in enumerate(columns) if _TIME.fullmatch(name)]
    if not clocks:
        shown = listed(columns, most=_SHOWN)
        raise DataError(f"{path}: has no column of times, only {shown}. {_EXPECTED}")
    names = {
        prefix + name: place
        for place, name in enumerate(columns)
        if name and place not in clocks and (wanted is None or prefix + name in wanted)
    }
    unit = _TIME.fullmatch(columns[clocks[0]])
    scale, comma = _SCALES[unit and unit[1]], delimiter != ","
    times, values = list[Floats](), list[Floats]()
    lines = csv.reader(io.StringIO(text[start:], newline=""), delimiter=delimiter)
    next(lines, None)
    above, before = text[:start].count("\n"), -np.inf
    while chunk := [(lines.line_num + above, row) for row in islice(lines, _AT_ONCE)]:
        chunk = [(line, row) for line, row in chunk if any(map(str.strip, row))]
        if not chunk:
            continue
        places, rows = zip(*chunk, strict=True)
        for line, row in chunk:
            if len(row) != len(columns):
                problem = f"has {counted(len(row), 'cell')}, not {len(columns)}"
                raise DataError(f"{path}, line {line}: {problem}. Export it again.")
        cells = list(zip(*rows, strict=True))
        stamps = _numbers(cells[clocks[0]], places, path, comma=comma, clock=True) * scale
        steps = np.diff(stamps, prepend=before)
        if (steps < 0).any():
            place = places[int((steps < 0).argmax())]
            problem = "its time stamp is before the one of the line above. Sort the table"
            raise DataError(f"{path}, line {place}: {problem}.")
        before = stamps[-1]
        times.append(stamps)
        numbers = [
            _numbers(cells[place], places, path, comma=comma, name=name)
            for name, place in names.items()
        ]
        values.append(np.array(numbers).T.reshape(len(rows), len(names)))
    if not times:
        raise DataError(f"{path}: holds no line of values. {_EXPECTED}")
    if times[0][0] > _MILLISECONDS:
        problem = "its time stamps seem to be milliseconds. Name their column time_ms"
        raise DataError(f"{path}: {problem}.")
    return SensorValues(path, tuple(names), np.concatenate(times), np.concatenate(values))


def _numbers(
    cells: Sequence[str],
    lines: Sequence[int],
    path: Path,
    *,
    comma: bool,
    clock: bool = False,
    name: str = "time",
) -> Floats:
    """Return the numbers in cells [n] of a column, NaN where there is none.

    Time stamps (`clock`) may be dates and times, and each must be there. Lines, path and name are
    for messages.
    """
    try:
        numbers = np.array(cells, dtype=np.float64)
    except ValueError:
        numbers = np.empty(len(cells))
        for place, cell in enumerate(cells):
            try:
                numbers[place] = _number(cell.strip(), comma=comma, clock=clock)
            except (ValueError, OverflowError) as problem:
                said = f"column '{name}' holds '{cell.strip()[:40]}'. {_EXPECTED}"
                raise DataError(f"{path}, line {lines[place]}: {said}") from problem
    missing = ~np.isfinite(numbers)
    if clock and missing.any():
        said = f"has no time stamp. {_EXPECTED}"
        raise DataError(f"{path}, line {lines[int(missing.argmax())]}: {said}")
    return np.where(missing, np.nan, numbers)


def _number(cell: str, *, comma: bool, clock: bool) -> float:
    """Return the number of a cell, or the Unix time of a date and time."""
    if cell.casefold() in _NO_VALUE:
        return np.nan
    try:
        return float(cell.replace(",", ".") if comma else cell)
    except ValueError:
        if not clock:
            raise
        moment = datetime.fromisoformat(cell)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def unscaled(
    tables: Sequence[SensorValues], recipe: SensorRecipe | None = None, *, rate: float = 1.0
) -> Floats:
    """Return mean, spread, slope, and whether there is no value, of each channel [n, C, 4].

    Args:
        tables: The tables of a video.
        recipe: Order of the channels, and their rate; by default as in the tables.
        rate: Rows a second without a recipe.
    """
    rate = rate if recipe is None else recipe.rate
    count = int(_end(tables) * rate + 1e-9) + 1
    if count > _MOST_ROWS:
        raise DataError(f"{tables[0].path}: {count:,} rows; expected at most {_MOST_ROWS:,}.")
    parts = {
        name: _windows(table.times, column, rate, count)
        for table in tables
        for name, column in zip(table.channels, table.values.T, strict=True)
    }
    names = list(parts) if recipe is None else recipe.channels
    return np.stack([parts[name] for name in names], axis=1)


def _windows(times: Floats, values: Floats, rate: float, count: int) -> Floats:
    """Return the four numbers of the values [n] of a channel in each window [count, 4]."""
    windows = np.floor(times * rate + 1e-9).astype(np.int64)
    inside = np.isfinite(values) & (windows >= 0)
    windows, times, values = windows[inside], times[inside], values[inside]
    rows = np.full((count, 4), np.nan)
    if not len(values):
        rows[:, 3] = 1.0
        return rows
    sizes = np.bincount(windows, minlength=count)
    filled, shares = sizes > 0, 1 / sizes.clip(min=1)

    def mean(numbers: Floats) -> Floats:
        return np.bincount(windows, numbers, count) * shares

    last = np.searchsorted(windows, np.arange(count), side="right") - 1  # value so far
    started = last >= 0
    rows[started, 0], rows[started, 1:3] = values[last[started]], 0.0
    late = times - mean(times)[windows]
    centre = values[0]  # large offsets would cost digits
    off = values - centre
    means = mean(off)
    off = off - means[windows]
    rows[filled, 0] = means[filled] + centre
    rows[filled, 1] = np.sqrt(mean(off**2))[filled]
    spans = mean(late**2)
    rows[filled, 2] = np.where(spans > 1e-12, mean(late * off) / spans.clip(min=1e-12), 0)[filled]
    rows[:, 3] = ~filled
    return rows


def sensor_features(
    source: Source,
    folder: Path,
    out: Path,
    *,
    rate: float = 1.0,
    channels: Sequence[str] | None = None,
    like: Path | str | None = None,
) -> tuple[Source, float]:
    """Write rows of sensors as files of features, with their recipe; return where they are.

    Also return their rate.

    Args:
        source: Annotated videos.
        folder: Folder with a table VIDEO.csv of each video, or a folder VIDEO of tables; or a
            LeRobot data set, of whose episodes observations and actions are read.
        out: Folder to write.
        rate: Rows a second.
        channels: Channels to keep; by default all, which the videos must share.
        like: Data set whose channels, rate and scaling are taken, instead of those of the training
            videos.

    Raises:
        DataError: A video without a table, videos of different channels, time stamps that do not
            overlap with steps, or as of `read_tables`.
    """
    videos, recipe = source.annotations.videos, None
    if like is not None:
        features = (open_dataset(like).provenance.get("observed") or {}).get("features") or {}
        if "sensors" not in features:
            raise DataError(f"{like}: was not prepared from tables of sensors.", setting="like")
        recipe = recipe_of(features["sensors"])
        rate, channels = recipe.rate, recipe.channels
    paths = dict(_paths(source, folder))
    numbers, names = list[Floats](), list[str]()
    for video in videos:
        tables = read_tables(paths[video.video_id], channels)
        here = [name for table in tables for name in table.channels]
        names = names or list(channels or here)
        if differing := {*names} ^ {*here}:
            two = f"'{videos[0].video_id}' and '{video.video_id}'"
            problem = f"{two} differ in the channels {listed(sorted(differing), most=_SHOWN)}"
            raise DataError(f"{folder}: {problem}. Choose channels.", setting="channels")
        _check_overlap(video, tables, paths[video.video_id])
        places = [here.index(name) for name in names]
        numbers.append(unscaled(tables, rate=rate)[:, places])
    if recipe is None:
        train = [rows for video, rows in zip(videos, numbers, strict=True) if video.split != "test"]
        recipe = SensorRecipe.fit(names, rate, train or numbers)
    files = file_names([video.video_id for video in videos])
    for video, rows in zip(videos, numbers, strict=True):
        np.save(out / f"{files[video.video_id]}.npy", recipe.scaled(rows))
    made_with = {"model": "sensors", "sensors": recipe.model_dump(mode="json")}
    write_json(out / "extract.json", made_with)
    return replace(source, names={name: (file,) for name, file in files.items()}), rate


def _paths(source: Source, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the table of each video, or the folder of its tables."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder with a table a video.")
    tables: dict[str, Path] = {}  # a table goes before a folder
    if is_robot(folder):
        robot = open_robot(folder)
        tables = {episode_name(number): robot.path(number) for number in robot.episodes}
    for path in sorted(folder.rglob("*"), key=Path.is_file) if not tables else ():
        if path.is_dir() or has_ending(path, _ENDINGS):
            whole = path if path.is_dir() else path.with_suffix("")
            tables[nfc(whole.relative_to(folder).as_posix())] = path
    missing = list[str]()
    for video in source.annotations.videos:
        names = source.names.get(video.video_id, (video.video_id,))
        named = [tables[name] for name in map(nfc, names) if name in tables]
        if not named:
            missing.append(f"'{video.video_id}'")
        else:
            yield video.video_id, named[0]
    if missing:
        problem = f"has no table of {listed(missing, most=_SHOWN)}"
        raise DataError(f"{folder}: {problem}. Name each VIDEO.csv, or leave the video out.")


def _check_overlap(video: Video, tables: Sequence[SensorValues], path: Path) -> None:
    """Refuse tables of another time than the steps of their video."""
    if not video.steps:
        return
    first, last = min(step.start for step in video.steps), max(step.end for step in video.steps)
    begin, end = min(float(table.times[0]) for table in tables), _end(tables)
    if begin > last or end < first or end > _FINER * max(last, 1.0):
        times = f"its time stamps run from {begin:g} to {end:g} s, the steps of '{video.video_id}'"
        problem = f"{times} from {first:g} to {last:g} s"
        raise DataError(f"{path}: {problem}. Give both in seconds from the same moment.")
