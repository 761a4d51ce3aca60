"""Your own annotations as one table, CSV or Parquet.

Each line is a step, with columns video, task, step, start, end, and split.

Actions and taxonomy are derived from the names: equal names are one action, and a task owns the
actions that occur in it. Steps of a video are put in the order of their start times. Names that
differ by little are pointed out, not merged.
"""

from __future__ import annotations

import csv
import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

from cefito.arrays import check_regular
from cefito.data.sources.source import Source, draw_split, make_step
from cefito.data.taxonomy import Action, Task, Taxonomy
from cefito.data.videos import SPLITS, Annotations, Step, Video
from cefito.errors import DataError

__all__ = ["near_duplicates", "read_table"]

COLUMNS = ("video", "task", "step", "start", "end")
_SHAPE = (
    "Expected the columns video, task, step, start, end (seconds) and, if you like, split (train, "
    "val or test)."
)
_SIMILAR = 0.9


def read_table(path: Path) -> Source:
    """Read a table of steps.

    Without a column split 30 % of the videos of each task are drawn for test, by a fixed seed.

    Args:
        path: CSV (comma, semicolon or tab) or Parquet, a line a step.

    Raises:
        DataError: A column is missing, a cell is malformed, a video has two tasks or splits; the
            message names the line.
    """
    rows = list(_rows(path))
    if not rows:
        raise DataError(f"{path}: holds no steps. {_SHAPE}")
    tasks = {
        name: number for number, name in enumerate(dict.fromkeys(row["task"] for _, row in rows))
    }
    actions = {
        name: number for number, name in enumerate(dict.fromkeys(row["step"] for _, row in rows))
    }
    facts: dict[str, tuple[str, str]] = {}
    steps: dict[str, list[Step]] = defaultdict(list)
    owned: dict[str, set[int]] = defaultdict(set)
    for place, row in rows:
        fact = (row["task"], row["split"])
        if facts.setdefault(row["video"], fact) != fact:
            raise DataError(
                f"{place}: video '{row['video']}' has task '{fact[0]}', split '{fact[1]}' here, "
                f"but task '{facts[row['video']][0]}', split '{facts[row['video']][1]}' before. "
                "Mend the line."
            )
        steps[row["video"]].append(
            make_step(row["start"], row["end"], actions[row["step"]], place=place)
        )
        owned[row["task"]].add(actions[row["step"]])
    taxonomy = Taxonomy(
        dataset=path.stem,
        actions=tuple(Action(id=number, name=name) for name, number in actions.items()),
        tasks=tuple(
            Task(id=number, name=name, actions=tuple(sorted(owned[name])))
            for name, number in tasks.items()
        ),
    )
    videos = tuple(
        Video(
            video_id=video,
            split=split or "train",
            task=tasks[task],
            steps=tuple(sorted(steps[video], key=lambda step: (step.start, step.end))),
        )
        for video, (task, split) in facts.items()
    )
    notes = [
        f"{kind} names that differ by little: '{one}' and '{other}'. If they mean the same, write "
        "them alike."
        for kind, one, other in _alike(taxonomy)
    ]
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


def near_duplicates(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by little: in case, spaces, punctuation, or a few letters of many.

    Numbers count: "add 1 egg" and "add 2 eggs" are no pair.
    """
    folded = [(name, _folded(name)) for name in names]
    found = []
    for (one, first), (other, second) in combinations(folded, 2):
        if re.findall(r"\d+", first) != re.findall(r"\d+", second):
            continue
        matcher = difflib.SequenceMatcher(None, first, second)
        if first == second or (
            matcher.real_quick_ratio() >= _SIMILAR
            and matcher.quick_ratio() >= _SIMILAR
            and matcher.ratio() >= _SIMILAR
        ):
            found.append((one, other))
    return found


def _alike(taxonomy: Taxonomy) -> Iterator[tuple[str, str, str]]:
    for one, other in near_duplicates(task.name for task in taxonomy.tasks):
        yield "task", one, other
    pairs = {
        pair: None
        for task in taxonomy.tasks
        for pair in near_duplicates(taxonomy.names(list(task.actions)))
    }
    same: dict[str, list[str]] = defaultdict(list)
    for action in taxonomy.actions:
        same[_folded(action.name)].append(action.name)
    pairs |= {(members[0], other): None for members in same.values() for other in members[1:]}
    for one, other in pairs:
        yield "step", one, other


def _folded(name: str) -> str:
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line with its place, all cells as trimmed text.

    `split` is empty where there is no such column.
    """
    lines = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    for place, row in lines:
        missing = [column for column in COLUMNS if column not in row]
        if missing:
            raise DataError(f"{path}: has no column '{missing[0]}'. {_SHAPE}")
        cells = {
            column: " ".join(str(row[column]).split()) if row[column] is not None else ""
            for column in (*COLUMNS, *(["split"] if "split" in row else []))
        }
        empty = [column for column, cell in cells.items() if not cell]
        if empty:
            raise DataError(f"{place}: '{empty[0]}' is empty. Fill it in or remove the line.")
        if cells.setdefault("split", "") not in ("", *SPLITS):
            raise DataError(
                f"{place}: split is '{cells['split']}'; expected one of {', '.join(SPLITS)}. Mend "
                "the line."
            )
        yield place, cells


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    check_regular(path, _SHAPE)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=head.count)
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            reader.fieldnames = [column.strip().casefold() for column in reader.fieldnames or ()]
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                if None in row:
                    raise DataError(
                        f"{place}: has more cells than the first line. Put names that hold "
                        f"'{delimiter}' between quotes."
                    )
                yield place, row
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. {_SHAPE}") from problem
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DataError(f"{path}: cannot be read as a table ({problem}). {_SHAPE}") from problem


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as problem:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow, which is not installed. Run pip install "
            "cefito[table], or save the table as CSV."
        ) from problem
    check_regular(path, _SHAPE)
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as problem:
        raise DataError(f"{path}: cannot be read as Parquet ({problem}). {_SHAPE}") from problem
    table = table.rename_columns([column.strip().casefold() for column in table.column_names])
    for number, row in enumerate(table.to_pylist()):
        yield f"{path}, row {number} (counted from 0)", row
