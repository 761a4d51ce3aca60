"""LeRobotDataset v3 with subtasks: its `meta/info.json`, beside which the frames are in Parquet.

https://huggingface.co/docs/lerobot/main/dataset_subtask: every frame has a `subtask_index`, and
`meta/subtasks.parquet` has the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from cefito.arrays import check_regular
from cefito.data.readers.formats.document import Document, Format, LooseRecord, StepRow
from cefito.errors import explained

__all__ = ["FORMAT"]

_REMEDY = "Annotate the episodes with subtasks, or copy the data set again."
_COLUMNS = ("episode_index", "frame_index", "timestamp", "task_index", "subtask_index")


class _Info(LooseRecord):
    codebase_version: str
    fps: PositiveFloat
    splits: Mapping[str, str] = {}


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the runs of frames with one subtask; frames without a subtask are no step."""
    info = document.record(_Info, document.json())
    if not info.codebase_version.startswith("v3"):
        problem = f"has version {info.codebase_version}; v3 is read. Convert it with lerobot"
        raise document.wrong(f"{problem}.")
    meta = document.path.resolve().parent
    steps = _names(meta / "subtasks.parquet", "subtask_index")
    tasks = _names(meta / "tasks.parquet", "task_index")
    splits = _splits(info.splits)
    for path in sorted(meta.parent.glob("data/*/*.parquet")):
        columns = _table(path, _COLUMNS)
        order = np.lexsort((columns["frame_index"], columns["episode_index"]))
        episode, _, time, task, step = (columns[name][order] for name in _COLUMNS)
        changed = (np.diff(episode) != 0) | (np.diff(step) != 0)
        runs = np.flatnonzero(np.concatenate([[len(step) > 0], changed])).tolist()
        for begin, end in zip(runs, [*runs[1:], len(step)], strict=True):
            if step[begin] < 0:
                continue
            number = int(episode[begin])
            yield StepRow(
                video=f"episode_{number:06d}",
                step=steps[int(step[begin])],
                start=float(time[begin]),
                end=float(time[end - 1]) + 1 / info.fps,
                place=document.place(f"episode {number}, frame {begin}"),
                task=tasks[int(task[begin])],
                split=splits.get(number, ""),
            )


def _names(path: Path, index: str) -> dict[int, str]:
    """Return names by their index; the names are the other column, whatever it is called."""
    columns = _table(path, ())
    (names,) = (values for name, values in columns.items() if name != index)
    return dict(zip(columns[index].tolist(), map(str, names), strict=True))


def _table(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read columns of a Parquet file, by default all; missing numbers become -1."""
    install = "Run pip install cefito[table]."
    with explained(path, "Parquet needs pyarrow", install, ImportError):
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    check_regular(path, _REMEDY)
    kinds = OSError, KeyError, ValueError, pyarrow.ArrowException
    with explained(path, "cannot be read", _REMEDY, *kinds):
        table = parquet.read_table(path, columns=list(names) or None)
        columns = {name: table.column(name) for name in names or table.column_names}
    return {
        name: column.fill_null(-1 if name in _COLUMNS else "").to_numpy()
        for name, column in columns.items()
    }


def _splits(given: Mapping[str, str]) -> dict[int, str]:
    """Return the split of each episode, of ranges such as "0:50"; empty if all are for training."""
    known = {name: text for name, text in given.items() if name in ("train", "val", "test")}
    if "test" not in known:
        return {}
    ranges = {name: range(*map(int, text.split(":"))) for name, text in known.items()}
    return {episode: name for name, episodes in ranges.items() for episode in episodes}


FORMAT = Format(
    name="LeRobotDataset",
    recognises=lambda document: '"codebase_version"' in document.head,
    read=_read,
    step="subtask",
)
