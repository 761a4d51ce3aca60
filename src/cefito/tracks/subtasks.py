"""Tracks written into a LeRobot data set: the subtask of each frame, and the names of subtasks.

As https://huggingface.co/docs/lerobot/main/dataset_subtask describes it. A frame has the step that
goes on in its middle. lerobot takes −1 as the last name, so frames of no step are named, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.robots import (
    INFO,
    NAMES,
    SUBTASK,
    RobotDataset,
    episode_number,
    import_pyarrow,
    open_robot,
)
from cefito.errors import ConfigError, DataError
from cefito.files import read_json, write_atomic, write_text
from cefito.locks import new_folder
from cefito.markup import listed
from cefito.tracks.formats.frame_labels import BACKGROUND
from cefito.tracks.track import TimedStep, Track

_SHOWN = 5
_LISTED = b"huggingface"  # entry of a table's metadata with its columns
_FEATURE = {"dtype": "int64", "shape": [1], "names": None}


@dataclass(frozen=True)
class Subtasks:
    """What was written into a data set."""

    episodes: int  # whose frames have the steps of a track
    frames: int  # of these episodes, with a step
    others: int  # frames that have the name of no step, of all episodes
    names: tuple[str, ...]  # by number
    unseen: tuple[str, ...]  # steps that no frame has, since they are shorter than one


def write_subtasks(tracks: Iterable[Track], folder: Path, out: Path | None = None) -> Subtasks:
    """Write the steps of episodes as subtasks into a copy of a LeRobot data set, or into itself.

    Episodes without a track keep their subtasks, and all names keep their numbers. In its place,
    names are written first and each file is replaced as a whole: what was not replaced stays valid.

    Args:
        tracks: Steps of videos that are called as the episodes, `episode_000003`.
        folder: The data set.
        out: New folder; None to write into `folder`.

    Raises:
        ConfigError: Two steps in one frame, or a copy within the data set itself.
        DataError: A video that is no episode, or twice; a damaged data set.
        RunError: A file cannot be written.
    """
    robot = open_robot(folder)
    if out is not None and out.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{out}: is within {folder}. Choose another folder.", setting="out")
    steps = _by_episode(tracks, robot)
    labels, written = _labelled(robot, steps)
    if out is None:
        _write(folder, labels, written.names)
        return written
    with new_folder(out) as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        copied = {copy / path.relative_to(folder): numbers for path, numbers in labels.items()}
        _write(copy, copied, written.names)
    return written


def _by_episode(tracks: Iterable[Track], robot: RobotDataset) -> dict[int, Sequence[TimedStep]]:
    """Return the steps of each episode."""
    steps: dict[int, Sequence[TimedStep]] = {}
    others = list[str]()
    for track in tracks:
        number = episode_number(track.video)
        if number is None or number not in robot.episodes:
            others.append(f"'{track.video}'")
        elif number in steps:
            raise DataError(f"episode {number}: its steps are given twice. Leave one out.")
        else:
            steps[number] = track.steps
    if others:
        problem = f"has no episode for {listed(others, most=_SHOWN)}"
        raise DataError(f"{robot.folder}: {problem}. Name videos as episode_000003.")
    return steps


def _labelled(
    robot: RobotDataset, steps: Mapping[int, Sequence[TimedStep]]
) -> tuple[dict[Path, NDArray[np.int64]], Subtasks]:
    """Return the number of each frame's subtask, of files that change, and what is written."""
    # names alone are there if writing them in place was ended before its end
    labelled = SUBTASK in robot.info.features or (robot.folder / NAMES[SUBTASK]).exists()
    names = robot.names(SUBTASK) if labelled else dict[int, str]()
    if [*names] != [*range(len(names))]:
        problem = "does not number its subtasks 0, 1, 2, …, as lerobot expects"
        raise DataError(f"{robot.folder}: {problem}. Number them anew.")
    numbers = {name: number for number, name in names.items()}
    before, labels = dict[Path, Any](), dict[Path, NDArray[np.int64]]()
    unseen, frames = list[str](), 0
    for path in robot.tables:
        columns, _ = robot.frames(path, either=[SUBTASK], ordered=False)
        episodes, middles = columns["episode_index"], columns["timestamp"] + 0.5 / robot.info.fps
        before[path] = columns.get(SUBTASK)
        subtasks = np.full(len(episodes), -1) if before[path] is None else before[path].copy()
        for number in sorted({*np.unique(episodes).tolist()} & {*steps}):
            inside = np.flatnonzero(episodes == number)
            subtasks[inside] = -1
            for step in steps[number]:
                during = (step.start <= middles[inside]) & (middles[inside] < step.end)
                chosen, label = inside[during], numbers.setdefault(step.name, len(numbers))
                if {*subtasks[chosen].tolist()} - {-1, label}:
                    problem = f"'{step.name}' and another step are in the same frames"
                    where = f"from second {step.start:g} on. A frame has one subtask"
                    raise ConfigError(f"episode {number}: {problem} {where}.")
                unseen += [f"episode {number}: {step.name}"] * (not len(chosen))
                subtasks[chosen] = label
            frames += int((subtasks[inside] >= 0).sum())
        labels[path] = subtasks
    if any((subtasks < 0).any() for subtasks in labels.values()):
        background = numbers.setdefault(BACKGROUND, len(numbers))
        labels = {
            path: np.where(subtasks < 0, background, subtasks) for path, subtasks in labels.items()
        }
    others = sum(int((subtasks == numbers.get(BACKGROUND)).sum()) for subtasks in labels.values())
    changed = {
        path: subtasks
        for path, subtasks in labels.items()
        if before[path] is None or (subtasks != before[path]).any()
    }
    return changed, Subtasks(len(steps), frames, others, tuple(numbers), tuple(unseen))


def _write(folder: Path, labels: Mapping[Path, NDArray[np.int64]], names: Sequence[str]) -> None:
    """Write names, then tables, and at last that there are subtasks."""
    write_atomic(folder / NAMES[SUBTASK], partial(_write_names, names))
    for path, numbers in labels.items():
        write_atomic(path, partial(_write_column, path, numbers))
    info = read_json(folder / INFO, "Copy the data set again.")
    if info["features"].get(SUBTASK) != _FEATURE:
        info["features"][SUBTASK] = _FEATURE
        write_text(folder / INFO, json.dumps(info, indent=4, ensure_ascii=False))


def _write_names(names: Sequence[str], path: Path) -> None:
    """Write a table of pandas whose index are the names."""
    pyarrow, parquet = import_pyarrow()
    text, number = ("unicode", "object"), ("int64", "int64")
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": own, "metadata": None}
        for name, (kind, own) in ((SUBTASK, number), ("subtask", text))
    ]
    pandas = {"index_columns": ["subtask"], "column_indexes": [], "columns": columns}
    held = {SUBTASK: pyarrow.array(range(len(names)), pyarrow.int64()), "subtask": [*names]}
    table = pyarrow.table(held).replace_schema_metadata({"pandas": json.dumps(pandas)})
    parquet.write_table(table, path)


def _write_column(path: Path, numbers: NDArray[np.int64], target: Path) -> None:
    """Write a table anew, group by group, with the number of each frame's subtask."""
    pyarrow, parquet = import_pyarrow()
    with parquet.ParquetFile(path) as file:
        schema, field = file.schema_arrow, pyarrow.field(SUBTASK, pyarrow.int64())
        place = schema.get_field_index(SUBTASK)
        schema = schema.append(field) if place < 0 else schema.set(place, field)
        schema = schema.with_metadata(_with_feature(schema.metadata))
        groups, begin = file.metadata.num_row_groups, 0
        kind = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
        kind = "NONE" if kind == "UNCOMPRESSED" else kind
        with parquet.ParquetWriter(target, schema, compression=kind) as writer:
            for group in range(groups):
                columns = [*file.read_row_group(group).columns]
                end = begin + len(columns[0])
                columns.append(pyarrow.array(numbers[begin:end]))
                if place >= 0:
                    columns[place] = columns.pop()
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
                begin = end


def _with_feature(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Return what a table says about itself, where the datasets library lists its columns."""
    held = {**(metadata or {})}
    if _LISTED in held:
        value = json.loads(held[_LISTED])
        value["info"]["features"][SUBTASK] = {"dtype": "int64", "_type": "Value"}
        held[_LISTED] = json.dumps(value).encode()
    return held
