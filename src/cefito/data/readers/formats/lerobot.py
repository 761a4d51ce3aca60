"""LeRobotDataset v3 with subtasks: its `meta/info.json`, beside which the frames are in Parquet.

Every frame has a `subtask_index`, and `meta/subtasks.parquet` has the names
(https://huggingface.co/docs/lerobot/main/dataset_subtask); or every frame of an episode has the
same list `language_persistent`, whose entries of the style "subtask" hold from their timestamp on
until the next one (https://huggingface.co/docs/lerobot/main/language_and_recipes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat, Strict

from cefito.arrays import check_binary
from cefito.data.readers.formats.document import Document, Format, LooseRecord
from cefito.data.readers.formats.films import StepRow
from cefito.errors import DataError, explained

_REMEDY = "Annotate the episodes with subtasks, or copy the data set again."
_COLUMNS = ("episode_index", "frame_index", "timestamp", "task_index")
_SUBTASKS, _LANGUAGE = "subtask_index", "language_persistent"
_RANGE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class _Info(LooseRecord):
    codebase_version: str
    fps: Annotated[PositiveFloat, Strict()]
    splits: Mapping[str, str] = {}


class _Entry(LooseRecord):
    content: str | None
    style: str | None
    timestamp: Annotated[float, Strict()]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the runs of frames with one subtask; frames without a subtask are no step."""
    info = document.record(_Info, document.json())
    if not info.codebase_version.startswith("v3"):
        problem = f"has version {info.codebase_version}; v3 is read. Convert it with lerobot"
        raise document.wrong(f"{problem}.")
    meta = document.path.resolve().parent
    tasks = _names(meta / "tasks.parquet", "task_index")
    splits = _splits(document, info.splits)
    subtasks: dict[int, str] = {}
    for path in sorted(meta.parent.glob("data/*/*.parquet")):
        table = _table(path, _COLUMNS, (_SUBTASKS, _LANGUAGE))
        columns = {name: table.column(name) for name in table.column_names}
        frames = {name: _numbers(column) for name, column in columns.items() if name != _LANGUAGE}
        _check_named(frames["task_index"], tasks, meta / "tasks.parquet", "task_index", path)
        if _SUBTASKS in frames:
            file, numbers = meta / "subtasks.parquet", frames[_SUBTASKS]
            subtasks = subtasks or _names(file, _SUBTASKS)
            _check_named(numbers[numbers >= 0], subtasks, file, _SUBTASKS, path)
        order = np.lexsort((frames["frame_index"], frames["episode_index"]))
        episode, _, time, task = (frames[name][order] for name in _COLUMNS)
        begins = _begins(episode)
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            number, last = int(episode[begin]), float(time[end - 1]) + 1 / info.fps
            spans: list[tuple[str, str, float, float]] = []
            if _SUBTASKS in columns:
                step = frames[_SUBTASKS][order[begin:end]]
                runs = _begins(step)
                for first, after in zip(runs, [*runs[1:], len(step)], strict=True):
                    if step[first] >= 0:
                        until = float(time[begin + after - 1]) + 1 / info.fps
                        label = subtasks[int(step[first])]
                        spans.append((_SUBTASKS, label, float(time[begin + first]), until))
            if _LANGUAGE in columns:
                entries = columns[_LANGUAGE][int(order[begin])].as_py() or []
                spans += _active(document, entries, last, f"episode {number}")
            for tier, label, start, until in spans:
                yield StepRow(
                    video=f"episode_{number:06d}",
                    step=label,
                    start=start,
                    end=until,
                    place=document.place(f"episode {number}, second {start:g}"),
                    task=tasks[int(task[begin])],
                    split=next((name for name, known in splits if number in known), ""),
                    tier=tier,
                )


def _active(
    document: Document, entries: list[object], last: float, where: str
) -> list[tuple[str, str, float, float]]:
    """Return the subtasks of an episode's annotations; each holds until the next, or the end."""
    found = [document.record(_Entry, entry, f"{where}, {_LANGUAGE}") for entry in entries]
    for entry in found:
        if entry.style != "subtask" or entry.timestamp >= last:
            late = " behind the end" * (entry.style == "subtask")
            document.left_out[f"persistent annotations of the style '{entry.style}'{late}"] += 1
    kept = {entry for entry in found if entry.style == "subtask" and entry.timestamp < last}
    found = sorted(kept, key=lambda entry: entry.timestamp)
    ends = [*(entry.timestamp for entry in found[1:]), last]
    if any(one.timestamp == other.timestamp for one, other in pairwise(found)):
        raise document.wrong(f"has two subtasks at one time. {_REMEDY}", where)
    return [
        (_LANGUAGE, entry.content or "", entry.timestamp, end)
        for entry, end in zip(found, ends, strict=True)
    ]


def _begins(values: NDArray[Any]) -> list[int]:
    """Return where runs of equal values begin."""
    changed = np.diff(values) != 0
    return [int(place) for place in np.flatnonzero(np.concatenate([[len(values) > 0], changed]))]


def _names(path: Path, index: str) -> dict[int, str]:
    """Return names by their index; the names are the other column, whatever it is called."""
    table = _table(path, (index,), whole=True)
    others = [name for name in table.column_names if name != index]
    if len(others) != 1:
        found = ", ".join(map(repr, others)) or "no other column"
        raise DataError(f"{path}: has '{index}' and {found}; expected one of names. {_REMEDY}")
    names = table.column(others[0]).to_pylist()
    return dict(zip(_numbers(table.column(index)).tolist(), map(str, names), strict=True))


def _check_named(
    numbers: NDArray[Any], names: Mapping[int, str], file: Path, index: str, frames: Path
) -> None:
    """Refuse frames whose number a file does not name."""
    if unknown := sorted(set(numbers.tolist()) - names.keys()):
        found = f"has no name for the {index} {unknown[0]} of frames in {frames}"
        raise DataError(f"{file}: {found}. {_REMEDY}")


def _numbers(column: Any) -> NDArray[Any]:
    """Return a column of numbers; missing ones become -1."""
    numbers: NDArray[Any] = column.fill_null(-1).to_numpy()
    return numbers


def _table(
    path: Path, names: tuple[str, ...], either: tuple[str, ...] = (), *, whole: bool = False
) -> Any:
    """Read columns of a Parquet file, and at least one of `either`; or all if `whole`."""
    install = "Run pip install cefito[table]."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_binary(path, _REMEDY)
    kinds = OSError, ValueError, pyarrow.ArrowException
    with explained(path, "cannot be read as Parquet", _REMEDY, *kinds):
        held = parquet.read_schema(path).names
        there = [name for name in either if name in held]
        lacking = [f"'{name}'" for name in names if name not in held]
        lacking += [" or ".join(f"'{name}'" for name in either)] * (bool(either) and not there)
        if not lacking:
            return parquet.read_table(path, columns=None if whole else [*names, *there])
    found = f"has no column {lacking[0]}, only {', '.join(held)}"
    raise DataError(f"{path}: {found}. {_REMEDY}")


def _splits(document: Document, given: Mapping[str, str]) -> list[tuple[str, range]]:
    """Return the episodes of each split, of texts as "0:50"; empty if all are for training."""
    known = {"train": "train", "val": "val", "validation": "val", "test": "test"}
    ranges: list[tuple[str, range]] = []
    for name, text in given.items() if "test" in given else ():
        if name not in known:
            document.left_out[f"split '{name}'"] += 1
            continue
        found = _RANGE.fullmatch(text)
        if found is None:
            raise document.wrong(f"its split '{name}' is '{text[:40]}'; expected one as 0:50.")
        ranges.append((known[name], range(int(found[1]), int(found[2]))))
    for (one, first), (other, second) in pairwise(sorted(ranges, key=lambda each: each[1].start)):
        if second.start < first.stop:
            raise document.wrong(f"its splits '{one}' and '{other}' share episodes. Correct them.")
    return ranges


FORMAT = Format(
    name="LeRobotDataset",
    recognises=lambda document: '"codebase_version"' in document.head,
    read=_read,
    step="subtask",
    tier="column",
)
