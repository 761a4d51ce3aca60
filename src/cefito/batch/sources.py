"""Where queries can stand: a split of a data set, a table, a folder of features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from cefito.batch.parquet import ParquetTable
from cefito.batch.rows import Row, Source
from cefito.batch.text_tables import open_csv, open_jsonl
from cefito.data.readers.archives import open_features
from cefito.data.videos import SPLITS
from cefito.data.windows import split_videos
from cefito.errors import ConfigError, DataError
from cefito.hashes import value_digest
from cefito.runs.matching import match_dataset
from cefito.runs.run import Run

__all__ = ["TABLES", "open_source", "open_table"]

_TABLES: dict[str, Callable[[Path], Source]] = {
    ".jsonl": open_jsonl,
    ".csv": open_csv,
    ".parquet": ParquetTable.open,
}
TABLES = tuple(_TABLES)
"""Endings of tables that queries can stand in."""
_FEATURES = (".npy", ".npz")


def open_source(run: Run, path: Path, *, split: str | None = None) -> Source:
    """Look through what holds queries.

    Args:
        run: The run that is to plan.
        path: A prepared data set, of which every window of a split is a query; a folder of
            features, one row a second, of which every file is a query, from its first second to its
            last; or a table, as `open_table` takes it.
        split: Of a data set: train, val or test, by default test.

    Raises:
        ConfigError: No such kind of file, or a split of something that has none.
        DataError: It cannot be read, or holds no query.
        RunError: The run cannot be used on the data set.
    """
    source: Source
    if (path / "dataset.json").exists():
        source = DatasetSplit.open(run, path, "test" if split is None else split)
    elif split is not None:
        raise ConfigError(
            f"{path}: is no prepared data set, and has no split '{split}'. Leave it out.",
            setting="split",
        )
    elif path.is_dir():
        source = FeatureFolder.open(path)
    else:
        source = open_table(path)
    if not len(source):
        raise DataError(f"{path}: holds no query.", setting="queries")
    return source


def open_table(path: Path) -> Source:
    """Look through a table of queries.

    Args:
        path: JSONL, one object a line, CSV with a head, or Parquet (needs pyarrow).

    Raises:
        ConfigError: Another ending than `TABLES`, or pyarrow is not installed.
        DataError: It cannot be read, or a column is none that queries have.
    """
    if path.suffix not in _TABLES:
        raise ConfigError(
            f"{path}: expected a list of queries that ends in {', '.join(TABLES[:-1])} or "
            f"{TABLES[-1]}.",
            setting="queries",
        )
    return _TABLES[path.suffix](path)


@dataclass(frozen=True)
class DatasetSplit:
    """The windows of a split of a prepared data set; a `Source`.

    Attributes:
        path: The data set.
        split: The split.
        fingerprint: Of the data set.
        ids: Id of each video that has windows.
        first_row: Row of the observation of each one's first step.
        first_window: Number of each one's first window, and behind the last the number of all.
        horizon: Steps of a window.
    """

    path: Path
    split: str
    fingerprint: str
    ids: tuple[str, ...]
    first_row: NDArray[np.int64]
    first_window: NDArray[np.int64]
    horizon: int

    @classmethod
    def open(cls, run: Run, path: Path, split: str) -> DatasetSplit:
        """Check a data set, and see where its windows are.

        Raises:
            ConfigError: No such split.
            DataError: The data set is damaged.
            RunError: The run cannot be used on it.
        """
        if split not in SPLITS:
            raise ConfigError(
                f"split '{split}': unknown. Choose one of {', '.join(SPLITS)}.", setting="split"
            )
        dataset = run.dataset(path)
        match_dataset(run, dataset)
        members = [
            (dataset.videos[index].video_id, dataset.first_row[index], windows)
            for index in split_videos(dataset.videos)[split]
            if (windows := len(dataset.videos[index].steps) - run.horizon + 1) > 0
        ]
        return cls(
            path=path,
            split=split,
            fingerprint=dataset.fingerprint,
            ids=tuple(name for name, _, _ in members),
            first_row=np.array([row for _, row, _ in members], dtype=np.int64),
            first_window=np.cumsum([0, *(count for _, _, count in members)], dtype=np.int64),
            horizon=run.horizon,
        )

    def __len__(self) -> int:
        return int(self.first_window[-1])

    @property
    def folder(self) -> Path:
        """The data set."""
        return self.path

    @property
    def identity(self) -> dict[str, str | int]:
        """Fingerprint and split."""
        return {
            "kind": "data set",
            "fingerprint": self.fingerprint,
            "split": self.split,
            "queries": len(self),
        }

    def rows(self, first: int, count: int) -> Iterator[Row]:
        """Some rows in their order; see `Source.rows`."""
        file = self.path / "features.safetensors"
        try:
            with safe_open(file, framework="np") as archive:
                starts, ends = archive.get_slice("start"), archive.get_slice("end")
                for number in range(first, min(first + count, len(self))):
                    yield self._row(number, starts, ends)
        except (SafetensorError, OSError) as problem:
            raise DataError(f"{file}: cannot be read any more ({problem}).") from problem

    def _row(self, number: int, starts: Any, ends: Any) -> Row:
        video = int(np.searchsorted(self.first_window, number, side="right")) - 1
        step = number - int(self.first_window[video])
        row = int(self.first_row[video]) + step
        last = row + self.horizon - 1
        name = f"{self.ids[video]}:{step}"
        return Row(
            number + 1,
            f"{self.path}, {name}",
            {"id": name, "initial": starts[row : row + 1][0], "goal": ends[last : last + 1][0]},
            name=name,
        )


@dataclass(frozen=True)
class FeatureFolder:
    """Files of features, each one query; a `Source`.

    Attributes:
        path: The folder.
        names: Names of the files, ordered.
    """

    path: Path
    names: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> FeatureFolder:
        """List the files.

        Raises:
            DataError: The folder cannot be read, or holds none.
        """
        try:
            names = sorted(
                entry.name
                for entry in path.iterdir()
                if entry.suffix in _FEATURES and not entry.name.startswith(".")
            )
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror}).") from problem
        if not names:
            raise DataError(
                f"{path}: is no prepared data set (no dataset.json), and holds no features (no "
                f"file that ends in {' or '.join(_FEATURES)}).",
                setting="queries",
            )
        return cls(path, tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return self.path

    @property
    def identity(self) -> dict[str, str | int]:
        """Names of the files; whether these have changed is seen piece by piece."""
        return {"kind": "features", "names": value_digest(self.names), "queries": len(self)}

    def rows(self, first: int, count: int) -> Iterator[Row]:
        """Some rows in their order; see `Source.rows`."""
        for number, name in enumerate(self.names[first : first + count], first + 1):
            place, given = str(self.path / name), Path(name).stem
            try:
                with open_features(self.path / name) as features:
                    end = float(features.rows)
            except DataError as problem:
                reason = str(problem).removeprefix(f"{place}: ")
                yield Row(number, place, name=given, problem=reason)
                continue
            value = {"id": given, "features": name, "start": 0.0, "end": end}
            yield Row(number, place, value, name=given)
