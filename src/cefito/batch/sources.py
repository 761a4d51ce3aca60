"""Sources of queries: a split of a data set, a table (JSONL, CSV, Parquet), a folder of features.

A source is read row by row from its beginning, by the process that hands out the work alone.
"""

from __future__ import annotations

import codecs
import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cefito.data.annotations import SPLITS
from cefito.data.windows import split_videos
from cefito.errors import ConfigError, DataError, explained
from cefito.files import check_regular, has_ending, lines_of, parse_json, sha256, value_digest
from cefito.inference.plan_formats import import_pyarrow
from cefito.inference.question import QueryFacts
from cefito.markup import Seconds, from_csv
from cefito.parts.matching import match_dataset
from cefito.planners.base_planner import check_partial
from cefito.planners.given import Given
from cefito.runs.run import Run

EXPECTED = (
    "Each line needs features, start and end, or initial and goal; for a run of several lengths, "
    "one of both, task or done is enough."
)
_OBSERVATIONS = Given()
_FEATURES = (".npy", ".npz")
_SPLIT = "Split the line."
_NOT_UTF8 = "is not UTF-8. Save the table as UTF-8."
_BUFFER = 1 << 16  # bytes of a Parquet column that are read at once
_BATCH = 64  # rows of Parquet that are read at once
_PANDAS_INDEX = "__index_level_0__"


class Columns(QueryFacts):
    """Columns of a row, without observations that are lists of numbers."""

    id: str | None = None
    features: Path | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    initial: Path | None = None
    goal: Path | None = None


@dataclass(frozen=True)
class Row:
    """One row of a source."""

    number: int  # line, or place in the source, counted from 1
    place: str  # file and line, for messages
    value: Any  # content by column; JSON that is not parsed yet as bytes
    problem: str = ""  # the reason if the row cannot be read
    whole: bool = False  # whether it is all seconds of its features

    def parsed(self) -> Row:
        """Return the row with its JSON parsed."""
        if not isinstance(self.value, bytes):
            return self
        try:
            return replace(self, value=parse_json(self.value.decode("utf-8")))
        except UnicodeDecodeError:
            problem = _NOT_UTF8
        except (ValueError, RecursionError) as error:
            problem = f"not valid JSON ({error}). {EXPECTED}"
        return replace(self, value=None, problem=problem)

    def files(self, folder: Path) -> list[Path]:
        """Return the files that the row, parsed, names relative to a folder."""
        cells = self.value if isinstance(self.value, Mapping) else {}
        names = [cells.get(name) for name in ("features", "initial", "goal")]
        return [folder / name for name in names if isinstance(name, str)]

    @property
    def id(self) -> str:
        """Return the name of the query: its id, otherwise its number."""
        name = self.value.get("id") if isinstance(self.value, Mapping) else None
        return str(name if isinstance(name, str | int) else self.number)


@dataclass(frozen=True)
class QuerySource:
    """Rows to be planned."""

    folder: Path  # of the files that rows name
    count: int
    identity: dict[str, str]  # for the record of a batch
    rows: Callable[[], Iterator[Row]]  # reads from the beginning


def open_source(
    run: Run, path: Path, *, split: str | None = None, given: Given = _OBSERVATIONS
) -> QuerySource:
    """Open a prepared data set, a folder of features or a table, see `open_table`.

    Every window of a split (by default test) is a query, or every file of the folder, one row a
    second, from its first second to its last. Windows are of all lengths that the run plans;
    `given.without_goal`, they begin at every step and have no goal. With `given.after_done`, the
    steps of the video before each window are known.

    Args:
        run: Opened run.
        path: Data set, folder of features, or table.
        split: Split of a data set, by default test.
        given: What is given of the windows of a data set.
    """
    if (path / "dataset.json").exists():
        split = "test" if split is None else split
        source = _open_split(run, path, split, given)
    elif split is not None or given.parts:
        setting = "split" if split else next(iter(given.parts))
        raise ConfigError(
            f"{path}: is no data set, so it has no split and no windows.", setting=setting
        )
    else:
        source = _open_folder(path) if path.is_dir() else open_table(path)
    if not source.count:
        raise DataError(f"{path}: holds no query, data set or features.", setting="queries")
    return source


def open_table(path: Path) -> QuerySource:
    """Open a table of queries: JSONL, CSV with a header, or Parquet (needs pyarrow)."""
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    ending = path.suffix.lower()
    if ending not in readers:
        raise ConfigError(f"{path}: expected .jsonl, .csv or .parquet.", setting="queries")
    check_regular(path, EXPECTED, DataError)
    read = partial(readers[ending], path)
    count = _parquet_rows(path) if ending == ".parquet" else sum(1 for _ in read())
    return QuerySource(path.parent, count, {"kind": "table", "sha256": sha256(path)}, read)


def _read_jsonl(path: Path) -> Iterator[Row]:
    with _reading(path), path.open("rb") as file:
        for number, line in enumerate(lines_of(file, path, _SPLIT), 1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if text.strip():
                yield Row(number, f"{path}, line {number}", text)


def _read_csv(path: Path) -> Iterator[Row]:
    # bytes that are not UTF-8 become lone surrogates, which are refused with their line
    with _reading(path), path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as f:
        reader = csv.reader(lines_of(f, path, _SPLIT), strict=True)
        with _reading(path, csv.Error):
            head = [name.strip() for name in next(reader, [])]
        _check_columns(path, head)
        while True:
            value, reason = {}, ""
            try:
                cells = next(reader)
                "".join(cells).encode()
                pairs = zip(head, map(from_csv, cells), strict=True)
                value = {name: cell for name, cell in pairs if cell.strip()}
            except StopIteration:
                return
            except csv.Error as problem:
                reason = f"not readable as CSV ({problem}). Correct the line."
            except UnicodeEncodeError:
                reason = _NOT_UTF8
            except ValueError:
                if not cells:  # an empty line
                    continue
                reason = f"has {len(cells)} cells, the header {len(head)}. Correct the line."
            yield Row(reader.line_num, f"{path}, line {reader.line_num}", value, reason)


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, list[str]]]:
    """Open a Parquet file, with the names of its columns."""
    pyarrow, parquet = import_pyarrow(path, "queries")
    unreadable = _reading(path, pyarrow.ArrowException)
    with unreadable, parquet.ParquetFile(path, buffer_size=_BUFFER) as file:
        yield file, [name for name in file.schema_arrow.names if name != _PANDAS_INDEX]


def _parquet_rows(path: Path) -> int:
    """Check the columns of a Parquet file, and return the number of its rows."""
    with _parquet(path) as (file, columns):
        _check_columns(path, columns)
        return int(file.metadata.num_rows)


def _read_parquet(path: Path) -> Iterator[Row]:
    number = 0
    with _parquet(path) as (file, columns):
        # one row group after the other: a reader of several keeps all that it has read
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(
                _BATCH, row_groups=[group], columns=columns, use_threads=False
            ):
                for row in batch.to_pylist():
                    number += 1
                    value = {name: _cell(name, cell) for name, cell in row.items()}
                    yield Row(number, f"{path}, row {number}", value)


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if name in ("id", "task", "steps") and value.is_integer():
            return int(value)  # pandas stores integers as floats if a cell is empty
    return value


def _check_columns(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name not in Columns.model_fields:
            columns = ", ".join(Columns.model_fields)
            raise DataError(f"{path}: column {name[:60]!r}: no such column. Columns are {columns}.")
        if names.count(name) > 1:
            raise DataError(f"{path}: column '{name}' occurs twice. Leave one out.")


def _reading(path: Path, *errors: type[Exception]) -> AbstractContextManager[None]:
    """Turn the errors of damaged and unreadable files into a `DataError`."""
    return explained(path, "cannot be read", "Make it again.", OSError, ValueError, *errors)


def _open_split(run: Run, path: Path, split: str, given: Given) -> QuerySource:
    """Open a split of a prepared data set; each of its windows is a query."""
    if split not in SPLITS:
        splits = ", ".join(SPLITS)
        raise ConfigError(f"split '{split}': unknown. Choose one of {splits}.", setting="split")
    dataset = run.dataset(path)
    without_goal, after_done = given.without_goal, given.after_done
    for setting in given.parts:
        if setting not in ("without_goal", "after_done"):
            raise ConfigError("batches are not given the truth. Leave it out.", setting=setting)
        check_partial(run.planner, setting)
    match = match_dataset(run, dataset)
    several = run.shortest is not None and not without_goal
    videos = []  # id, row of the first step, actions in the run's ids
    for index in split_videos(dataset.videos)[split]:
        video = dataset.videos[index]
        ids = match.vocabulary.actions[video.task, [step.action for step in video.steps]]
        videos.append((video.video_id, int(dataset.first_row[index]), ids))
    identity = {"kind": "data set", "fingerprint": dataset.fingerprint, "split": split}
    if given.parts:
        identity["given"] = ", ".join(given.parts.values())

    def rows() -> Iterator[Row]:
        file, number = path / "features.safetensors", 0
        with _reading(file, SafetensorError), safe_open(file, framework="np") as archive:
            starts, ends = archive.get_slice("start"), archive.get_slice("end")
            for video, row, ids in videos:
                for first, length in _places(run, len(ids), several=several):
                    number += 1
                    name = f"{video}:{first}" + f":{length}" * several
                    before, last = row + first, row + first + length - 1
                    value = {"id": name, "initial": starts[before : before + 1][0]}
                    if not without_goal:
                        value["goal"] = ends[last : last + 1][0]
                    if after_done:
                        value["done"] = [int(action) for action in ids[:first] if action >= 0]
                    yield Row(number, f"{path}, {name}", value)

    count = sum(len(_places(run, len(ids), several=several)) for _, _, ids in videos)
    return QuerySource(path, count, identity, rows)


def _places(run: Run, steps: int, *, several: bool) -> list[tuple[int, int]]:
    """Return the first step, from 0, and the length of each window of a video of `steps` steps.

    If `several`, there are windows of every length that the run plans, otherwise the longest one
    from each first step.
    """
    least = run.shortest or run.horizon
    most = [min(run.horizon, steps - first) for first in range(steps - least + 1)]
    return [
        (first, length)
        for first, longest in enumerate(most)
        for length in range(least if several else longest, longest + 1)
    ]


def _open_folder(path: Path) -> QuerySource:
    """Open a folder of features; each file is a query."""
    with _reading(path):
        names = sorted(
            entry.name
            for entry in path.iterdir()
            if has_ending(entry, _FEATURES) and not entry.name.startswith(".")
        )

    def rows() -> Iterator[Row]:
        for number, name in enumerate(names, 1):
            value = {"id": Path(name).stem, "features": name}
            yield Row(number, str(path / name), value, whole=True)

    return QuerySource(path, len(names), {"kind": "features", "names": value_digest(names)}, rows)
