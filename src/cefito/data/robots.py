"""LeRobot data sets of version 3: episodes of robots, whose frames are lines of tables.

A folder holds `meta/info.json`, `meta/tasks.parquet`, `meta/episodes/` (a line an episode), `data/`
(a line a frame), `videos/KEY/` (films of a camera, of several episodes each), and, if frames have
subtasks, `meta/subtasks.parquet`. `FOLDER/episode_000003` stands for one of its episodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PositiveFloat

from cefito.data.vocabulary import nfc
from cefito.errors import DataError, explained, install_command
from cefito.files import check_binary, read_json
from cefito.markup import listed
from cefito.settings import Record, read_record

INFO = "meta/info.json"
"""What a data set holds."""
TASK, SUBTASK = "task_index", "subtask_index"
"""Columns of numbers that `meta/tasks.parquet` and `meta/subtasks.parquet` name."""
NAMES = {TASK: "meta/tasks.parquet", SUBTASK: "meta/subtasks.parquet"}
"""Files of these names."""
_EPISODE, _FRAME, _TIME = "episode_index", "frame_index", "timestamp"
_NUMBERED = re.compile(r"(?:episode_)?([0-9]{1,9})")
_AGAIN = "Copy the data set again."
_VERSION = "v3"
_SHOWN = 5


def table_at(number: int, file: int) -> str:
    """Return the path of a file of a chunk, without its ending, below its folder."""
    return f"chunk-{number:03}/file-{file:03}"


class Feature(Record):
    """A column of the frames, or a camera."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    dtype: str
    shape: tuple[int, ...] = ()
    names: Any = None  # of its numbers: a list, or a mapping with one

    @property
    def labels(self) -> list[str]:
        """Names of its numbers; their places if it has none that tell them apart."""
        size = self.shape[0] if self.shape else 1
        lists = [*self.names.values()] if isinstance(self.names, Mapping) else [self.names]
        names = [str(name) for name in lists[0]] if lists and isinstance(lists[0], list) else []
        return names if len({*names}) == len(names) == size else [*map(str, range(size))]


class RobotInfo(Record):
    """`meta/info.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    fps: PositiveFloat  # frames a second
    features: Mapping[Annotated[str, Field(pattern=r"^[^/\\]+$")], Feature]
    splits: Mapping[str, str] = {}  # episodes, as "0:50"


@dataclass(frozen=True)
class Film:
    """A film, or the part of it that shows an episode."""

    path: Path
    # where it begins and ends, in seconds of the file's clock; None for the whole film
    part: tuple[float, float] | None = None


@dataclass(frozen=True)
class Episode:
    """Where an episode is."""

    number: int
    table: Path  # of its frames
    films: Mapping[str, Film]  # by camera


class RobotDataset:
    """A LeRobot data set, of which tables are read when they are needed."""

    def __init__(self, folder: Path) -> None:
        path = folder / INFO
        value = read_json(path, _AGAIN)
        version = str(value.get("codebase_version", "")) if isinstance(value, dict) else ""
        if not version.startswith(_VERSION):
            said = f"is of version {version or 'unknown'}; {_VERSION}.0 is read"
            how = "Convert it with lerobot (python -m lerobot.datasets.v30"
            how += ".convert_dataset_v21_to_v30 --repo-id NAME --root FOLDER)"
            raise DataError(f"{path} (LeRobot): {said}. {how}.")
        self.folder = folder
        self.info = read_record(RobotInfo, value, f"{path}: damaged", _AGAIN, DataError)
        self._values: tuple[Path, dict[str, NDArray[Any]]] | None = None

    @property
    def cameras(self) -> list[str]:
        """Keys of the cameras that have films."""
        return [key for key, what in self.info.features.items() if what.dtype == "video"]

    def camera(self, name: str | None) -> str:
        """Return the key of a camera by it or its last part; of the only one if None.

        Raises:
            DataError: No such camera, several and none was said, or pictures without films.
        """
        keys = self.cameras
        named = [key for key in keys if name in (None, key, key.rpartition(".")[2])]
        if len(named) == 1:
            return named[0]
        pictures = any(what.dtype == "image" for what in self.info.features.values())
        if not keys:
            how = "Convert them (lerobot-edit-dataset --operation.type convert_image_to_video)"
            said = f"holds pictures in its tables, not films. {how}" if pictures else "has none"
        else:
            said = f"has the cameras {', '.join(keys)}. Name one"
        asked = "" if name is None else f"camera '{name}': "
        raise DataError(f"{self.folder}: {asked}{said}.", setting="camera")

    @cached_property
    def channels(self) -> dict[str, tuple[str, int]]:
        """Column and place of each value of a sensor: of observations and actions, by name."""
        return {
            nfc(f"{key}.{label}").casefold(): (key, place)
            for key, what in self.info.features.items()
            if what.dtype.startswith("float") and len(what.shape) <= 1
            if key == "action" or key.startswith("observation.")
            for place, label in enumerate(what.labels)
        }

    @property
    def tables(self) -> list[Path]:
        """The tables of frames (DataError if there is none)."""
        return self._files("data")

    def _files(self, folder: str) -> list[Path]:
        if paths := sorted((self.folder / folder).glob("*/*.parquet")):
            return paths
        raise DataError(f"{self.folder / folder}: holds no tables. {_AGAIN}")

    @cached_property
    def episodes(self) -> dict[int, Episode]:
        """The episodes by number, ascending."""
        places = ["data/chunk_index", "data/file_index"]
        facts = "chunk_index", "file_index", "from_timestamp", "to_timestamp"
        keys = {key: [f"videos/{key}/{fact}" for fact in facts] for key in self.cameras}
        wanted = [_EPISODE, *places, *(name for names in keys.values() for name in names)]
        rows: dict[int, Episode] = {}
        for path in self._files("meta/episodes"):
            for row in read_table(path, wanted).to_pylist():
                with explained(path, "damaged", _AGAIN, TypeError, ValueError, OverflowError):
                    number, *table = (int(row[name]) for name in (_EPISODE, *places))
                    films = dict[str, Film]()
                    for key, names in keys.items():
                        chunk, file, start, end = (row[name] for name in names)
                        if chunk is None:  # a camera may lack an episode
                            continue
                        if not 0 <= start < end < np.inf:
                            times = f"from second {start:g} to {end:g}"
                            raise ValueError(f"episode {number} is {times} of its film")
                        film = f"{table_at(int(chunk), int(file))}.mp4"
                        part = float(start), float(end)
                        films[key] = Film(self.folder / "videos" / key / film, part)
                    if number in rows:
                        raise ValueError(f"episode {number} is there twice")
                at = self.folder / "data" / f"{table_at(*table)}.parquet"
                rows[number] = Episode(number, at, films)
        return dict(sorted(rows.items()))

    def episode(self, number: int) -> Episode:
        """Return an episode (DataError if there is no such)."""
        if number not in self.episodes:
            held = f"{len(self.episodes)} from {min(self.episodes)} to {max(self.episodes)}"
            raise DataError(f"{self.folder}: has no episode {number}, only {held}.")
        return self.episodes[number]

    def film(self, number: int, camera: str | None) -> Film:
        """Return the film of an episode by a camera (DataError without one, or as of `camera`)."""
        key, films = self.camera(camera), self.episode(number).films
        if key not in films:
            problem = f"has no film of episode {number} by {key}. Leave it out"
            raise DataError(f"{self.folder}: {problem}.")
        return films[key]

    def path(self, number: int) -> Path:
        """Return the path that stands for an episode."""
        return self.folder / episode_name(number)

    def names(self, index: str) -> dict[int, str]:
        """Return names of tasks or subtasks by number.

        Raises:
            DataError: No such file, or it does not hold one column of names beside the numbers.
        """
        path = self.folder / NAMES[index]
        table = read_table(path, [index], whole=True)
        others = [name for name in table.column_names if name != index]
        if len(others) != 1:
            held = listed(others, most=_SHOWN) if others else "no other column"
            raise DataError(f"{path}: has '{index}' and {held}; expected one of names. {_AGAIN}")
        names = [" ".join(nfc(str(name)).split()) for name in table.column(others[0]).to_pylist()]
        return dict(zip(_numbers(table, index, path).tolist(), names, strict=True))

    def frames(
        self,
        path: Path,
        names: Sequence[str] = (),
        either: Sequence[str] = (),
        *,
        ordered: bool = True,
    ) -> tuple[dict[str, NDArray[Any]], Any]:
        """Read the frames of a table; missing numbers become −1.

        Times are those of the frames' grid: `timestamp` has half the digits of a float.

        Args:
            path: The table.
            names: Columns of numbers that are read beside episode and time, which must be there.
            either: Columns that are read if they are there.
            ordered: Sort frames by episode and time; else they keep their order.

        Returns:
            Columns of numbers [n] by name, and the table with all columns that were read.
        """
        table = read_table(path, [_EPISODE, _FRAME, _TIME, *names], either)
        if ordered:
            with explained(path, "damaged", _AGAIN, *_kinds()):
                table = table.sort_by([(_EPISODE, "ascending"), (_FRAME, "ascending")])
        wanted = (_EPISODE, *names, *(name for name in either if name == SUBTASK))
        held = {name: _numbers(table, name, path) for name in wanted if name in table.column_names}
        return held | {_TIME: self.grid(_numbers(table, _TIME, path, whole=False))}, table

    def grid(self, times: NDArray[Any]) -> NDArray[np.float64]:
        """Return the times in seconds of the frames that are next to some."""
        frames: NDArray[np.float64] = np.rint(times.astype(np.float64) * self.info.fps)
        return frames / self.info.fps

    def values(
        self, number: int, channels: Iterable[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return times in seconds [n] and values [n, C] of channels of an episode."""
        path = self.episode(number).table
        if self._values is None or self._values[0] != path:
            keys = dict.fromkeys(key for key, _ in self.channels.values())
            held, table = self.frames(path, either=[*keys])
            held |= {
                key: _vectors(table, key, len(self.info.features[key].labels), path) for key in keys
            }
            self._values = path, held
        held = self._values[1]
        inside = held[_EPISODE] == number
        if not inside.any():
            raise DataError(f"{path}: holds no frame of episode {number}. {_AGAIN}")
        places = [self.channels[name] for name in channels]
        columns = [held[key][inside, place] for key, place in places]
        values = np.array(columns, np.float64).reshape(len(columns), int(inside.sum()))
        return held[_TIME][inside], values.T

    def splits(self) -> list[tuple[str, range]]:
        """Return the episodes of each split; empty if none is for test.

        Raises:
            DataError: A split that is not written as "0:50", or two that share episodes.
        """
        known = {"train": "train", "val": "val", "validation": "val", "test": "test"}
        ranges = list[tuple[str, range]]()
        for name, text in self.info.splits.items() if "test" in self.info.splits else ():
            ends = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
            if ends is None:
                said = f"its split '{name}' is '{text[:40]}'; expected one as 0:50"
                raise DataError(f"{self.folder / INFO}: {said}.")
            episodes = range(int(ends[1]), int(ends[2]))
            if shared := [other for other, before in ranges if {*before} & {*episodes}]:
                said = f"its splits '{shared[0]}' and '{name}' share episodes"
                raise DataError(f"{self.folder / INFO}: {said}. Correct them.")
            ranges += [(known[name], episodes)] if name in known else []
        return ranges


def episode_name(number: int) -> str:
    """Return the name of an episode as a video."""
    return f"episode_{number:06d}"


def episode_number(name: str) -> int | None:
    """Return the number of an episode by its name, or digits; None if it is neither."""
    match = _NUMBERED.fullmatch(name.rpartition("/")[2])
    return int(match[1]) if match else None


def is_robot(folder: Path) -> bool:
    """Whether a folder is a LeRobot data set, of any version."""
    return (folder / INFO).is_file()


def open_robot(folder: Path) -> RobotDataset:
    """Open a LeRobot data set (DataError); one that has not changed since is not read again."""
    path = folder / INFO
    with explained(path, "cannot be read", _AGAIN):
        return _opened(folder, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _opened(folder: Path, changed: int) -> RobotDataset:  # noqa: ARG001
    return RobotDataset(folder)


def find_episode(path: Path) -> tuple[RobotDataset, int] | None:
    """Return the data set and the number of the episode for which a path stands; else None."""
    number = episode_number(path.name)
    if number is None or not is_robot(path.parent):
        return None
    robot = open_robot(path.parent)
    return robot, robot.episode(number).number


def all_episodes(inputs: Iterable[str], dataset: Path | str | None) -> Iterator[str]:
    """Yield inputs, with all episodes for a LeRobot data set, and paths for names of its episodes.

    Args:
        inputs: Paths, or names of videos.
        dataset: Data set of all inputs; None if they are no names of one.

    Raises:
        DataError: A name that is no episode of the LeRobot data set.
    """
    robot = None
    if dataset is not None and is_robot(Path(dataset)):
        robot = open_robot(Path(dataset))
    for name in inputs:
        if robot is not None:
            number = episode_number(name)
            if number is None:
                problem = f"'{name}' is no episode. Name them as 3 or {episode_name(3)}"
                raise DataError(f"{robot.folder}: {problem}.")
            yield str(robot.path(robot.episode(number).number))
        elif dataset is None and is_robot(Path(name)):
            whole = open_robot(Path(name))
            yield from (str(whole.path(number)) for number in whole.episodes)
        else:
            yield name


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet (DataError if it is not installed)."""
    install = f"Run {install_command('table')}."
    with explained("Parquet", "needs pyarrow", install, ImportError, error=DataError):
        return import_module("pyarrow"), import_module("pyarrow.parquet")


def _kinds() -> tuple[type[Exception], ...]:
    """Errors of pyarrow for files that are damaged."""
    return OSError, ValueError, KeyError, import_pyarrow()[0].ArrowException


def read_table(
    path: Path, names: Sequence[str], either: Sequence[str] = (), *, whole: bool = False
) -> Any:
    """Read columns of a Parquet file, as a table of pyarrow.

    Args:
        path: File.
        names: Columns that must be there.
        either: Columns that are read if they are there.
        whole: Read all columns.

    Raises:
        DataError: The file is missing or damaged, or lacks a column, or pyarrow is not installed.
    """
    parquet = import_pyarrow()[1]
    check_binary(path, _AGAIN)
    reading = explained(path, "cannot be read as Parquet", _AGAIN, *_kinds())
    with reading, parquet.ParquetFile(path) as file:
        held = file.schema_arrow.names
        lacking = [name for name in names if name not in held]
        if not lacking:
            wanted = [*names, *(name for name in either if name in held)]
            return file.read(columns=None if whole else wanted)
    shown = listed(held, most=12)
    raise DataError(f"{path}: has no column '{lacking[0]}', only {shown}. {_AGAIN}")


def _numbers(table: Any, name: str, path: Path, *, whole: bool = True) -> NDArray[Any]:
    """Return a column of numbers [n]; missing ones become −1."""
    with explained(path, f"column '{name}' holds no numbers", _AGAIN, TypeError, *_kinds()):
        column: NDArray[Any] = table.column(name).fill_null(-1).to_numpy()
        if column.dtype.kind not in ("iu" if whole else "iuf") or not np.isfinite(column).all():
            raise ValueError(f"expected {'whole numbers' if whole else 'seconds'}")
    return column


def _vectors(table: Any, name: str, size: int, path: Path) -> NDArray[Any]:
    """Return a column of vectors [n, size], or of one number, [n, 1]."""
    with explained(path, f"column '{name}' is damaged", _AGAIN, TypeError, *_kinds()):
        column = table.column(name).combine_chunks()
        numbers: NDArray[Any] = getattr(column, "flatten", lambda: column)().to_numpy(False)
        return numbers.reshape(len(table), size)
