"""Your own annotations as one table of steps, CSV or Parquet.

The taxonomy is derived from the names: equal names are one action, and each task owns the actions
that occur in it. Steps of a video are sorted by their start times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from cefito.arrays import check_regular
from cefito.data.annotations import SPLITS, Annotations, Step, Taxonomy, Video, folded, nfc
from cefito.data.readers.csv_file import check_columns, read_csv
from cefito.data.readers.merges import Merges
from cefito.data.readers.name_similarity import names_alike
from cefito.data.readers.source import Source, draw_split, make_step
from cefito.errors import DataError, explained

__all__ = ["COLUMNS", "MERGING", "read_table"]

COLUMNS = ("video", "task", "step", "start", "end")
_SHAPE = (
    "Expected the columns video, task, step, start, end (seconds) and, optionally, split (train, "
    "val or test)."
)
MERGING = "Names that mean the same can also be merged by a map of names."
"""Note on tables with names that differ by little."""
_SHOWN = 10  # pairs of names that are reported one by one
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?[.,][0-9]+")
_CLOCK = re.compile(r"(?:([0-9]+):(?=[0-5]?[0-9]:))?([0-9]+):([0-5]?[0-9](?:[.,][0-9]*)?)")


def read_table(
    path: Path | str, *, columns: Mapping[str, str] | None = None, merges: Merges | None = None
) -> Source:
    """Read a table of steps.

    Times are seconds or "1:02:03.5", with a decimal point or comma. Without a column split, 30 % of
    the videos of each task are drawn for test, by a fixed seed.

    Args:
        path: CSV (comma, semicolon or tab) or Parquet, one line a step.
        columns: The table's own names of columns, by the ones that are expected.
        merges: Names to replace.
    """
    path = Path(path)
    rows = list(_rows(path, dict(columns or {})))
    if not rows:
        raise DataError(f"{path}: holds no steps. {_SHAPE}")
    if merges is not None:
        merges.check_known((row["task"] for _, row in rows), (row["step"] for _, row in rows))
        for _, row in rows:
            row["task"] = merges.tasks.get(row["task"], row["task"])
            row["step"] = merges.steps.get(row["step"], row["step"])
    tasks, actions = (
        {name: number for number, name in enumerate(dict.fromkeys(row[key] for _, row in rows))}
        for key in ("task", "step")
    )
    facts: dict[str, tuple[str, str]] = {}
    steps: dict[str, dict[Step, str]] = defaultdict(dict)
    owned: dict[str, set[int]] = defaultdict(set)
    times = _Times()
    for place, row in rows:
        fact = (row["task"], row["split"])
        before = facts.setdefault(row["video"], fact)
        if before != fact:
            alike = fact[0] != before[0] and folded(fact[0]) == folded(before[0])
            both = "task '{}', split '{}', but before task '{}', split '{}'".format(*fact, *before)
            merge = f" or merge the names by the line task,{fact[0]},{before[0]}" * alike
            problem = f"{place}: video '{row['video']}' has {both}. Correct the line{merge}."
            raise DataError(problem, setting="merge" * alike)
        step = times.step(row["start"], row["end"], actions[row["step"]], place)
        earlier = steps[row["video"]].setdefault(step, place)
        if earlier != place:
            raise DataError(f"{place}: repeats {earlier.rpartition(', ')[2]}. Remove one of them.")
        owned[row["task"]].add(step.action)
    taxonomy = Taxonomy.from_names(nfc(path.stem), [(name, owned[name]) for name in tasks], actions)
    videos = tuple(
        Video(
            video_id=video,
            split=split or "train",
            task=tasks[task],
            steps=tuple(sorted(steps[video], key=lambda step: (step.start, step.end))),
        )
        for video, (task, split) in facts.items()
    )
    notes = [*([merges.note()] if merges is not None else []), *_near_names(taxonomy)]
    if not rows[0][1]["split"]:
        videos = draw_split(videos)
        notes.append("The table has no split: 30 % of the videos of each task were drawn for test.")
    return Source(
        annotations=Annotations(taxonomy=taxonomy, videos=videos),
        form="table of steps",
        files=(path,),
        names={video: (video, Path(video).stem) for video in facts},
        notes=tuple(notes),
    )


def seconds(text: str) -> float:
    """Parse a time: "43.27", "43,27", "00:43.27" or "1:02:03,5"."""
    if _NUMBER.fullmatch(text):
        return float(text.replace(",", "."))
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        raise ValueError(f"{text!r} is not a time")
    hours, minutes, rest = clock[1], int(clock[2]), float(clock[3].replace(",", "."))
    return 3600.0 * int(hours or 0) + 60.0 * minutes + rest


class _Times:
    """The times of one table, all with the same decimal sign."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}  # place of the first time with each decimal sign

    def step(self, start: str, end: str, action: int, place: str) -> Step:
        times = f"the step runs from {start!r} to {end!r}"
        expected = "Expected seconds (43.27 or 43,27) or hours, minutes and seconds (1:02:03.5)."
        with explained(place, times, expected):
            step = make_step(seconds(start), seconds(end), action, place=place)
        for text in (start, end):
            sign = next((sign for sign in ".," if sign in text), "")
            if sign:
                self._first.setdefault(sign, place)
        if len(self._first) == 2:
            first = next(iter(self._first.values())).rpartition(", ")[2]
            raise DataError(f"{place}: has another decimal sign than {first}. Write times alike.")
        return step


def _near_names(taxonomy: Taxonomy) -> Iterator[str]:
    """Notes on names that differ by little."""
    found = names_alike(taxonomy)
    for kind, one, other in found[:_SHOWN]:
        pair = f"'{one}' and '{other}'. If they mean the same, write them alike."
        yield f"{kind} names that differ by little: {pair}"
    if len(found) > _SHOWN:
        yield f"There are {len(found) - _SHOWN} more pairs of names that differ by little."
    if found:
        yield MERGING


def _rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line with its place and stripped cells; `split` is empty without such a column."""
    unknown = [column for column in columns if column not in (*COLUMNS, "split")]
    if unknown:
        raise DataError(f"column '{unknown[0]}' is not needed. {_SHAPE}", setting="column")
    lines = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else read_csv(path, _SHAPE)
    theirs = {column: columns.get(column, column).strip().casefold() for column in COLUMNS}
    for place, row in lines:
        wanted = dict(theirs)
        if "split" in columns or "split" in row:
            wanted["split"] = columns.get("split", "split").strip().casefold()
        for column, name in wanted.items():
            if name not in row:
                found = f"{path}: has no column '{name}', only {', '.join(filter(None, row))}"
                raise DataError(f"{found}. Give its name ({column}=NAME).", setting="column")
        cells = {
            column: "" if row[name] is None else " ".join(nfc(str(row[name])).split())
            for column, name in wanted.items()
        }
        empty = [column for column, cell in cells.items() if not cell]
        if empty:
            raise DataError(f"{place}: '{empty[0]}' is empty. Fill it in or remove the line.")
        split = cells.setdefault("split", "")
        if split.casefold() not in ("", *SPLITS):
            raise DataError(f"{place}: split is '{split}'; expected one of {', '.join(SPLITS)}.")
        cells["split"] = split.casefold()
        yield place, cells


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    install = "Run pip install cefito[table], or save the table as CSV."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_regular(path, _SHAPE)
    kinds = OSError, pyarrow.ArrowException
    with explained(path, "cannot be read as Parquet", _SHAPE, *kinds):
        table = parquet.read_table(path)
    names = [column.strip().casefold() for column in table.column_names]
    check_columns(path, names)
    for number, row in enumerate(table.rename_columns(names).to_pylist()):
        yield f"{path}, row {number} (counted from 0)", row
