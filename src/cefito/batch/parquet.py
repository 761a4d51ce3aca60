"""Queries in a Parquet file, read forward a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cefito.arrays import check_regular
from cefito.batch.rows import EXPECTED, PIECE, Row
from cefito.batch.text_tables import check_columns
from cefito.errors import ConfigError, DataError
from cefito.files import sha256

__all__ = ["ParquetTable", "pyarrow_of"]

_BUFFER = 1 << 16  # bytes of a column that are read at once
_INDEX = "__index_level_0__"  # what pandas adds


def pyarrow_of(path: Path, setting: str) -> tuple[Any, Any]:
    """The library and its module of Parquet.

    Args:
        path: The file that it is wanted for.
        setting: What names the file.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as problem:
        raise ConfigError(
            f"{path}: Parquet needs pyarrow, which is not installed. Run pip install "
            "cefito[table], or use .jsonl.",
            setting=setting,
        ) from problem


@dataclass(frozen=True)
class ParquetTable:
    """An opened Parquet file; a `Source`.

    Attributes:
        path: The file.
        columns: Its columns that queries have.
        count: Number of queries.
        digest: SHA-256 of the file.
        state: Size and time of the file when it was read.
        reader: What has been opened and how far it was read, so that the next piece is near.
    """

    path: Path
    columns: tuple[str, ...]
    count: int
    digest: str
    state: tuple[int, int]
    reader: list[_Forward] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> ParquetTable:
        """Look through a Parquet file.

        Raises:
            ConfigError: pyarrow is not installed.
            DataError: It cannot be read, or a column is none that queries have.
        """
        _, parquet = pyarrow_of(path, "queries")
        check_regular(path, EXPECTED, DataError)
        stat = _guarded(path, path.stat)
        with _guarded(path, lambda: parquet.ParquetFile(path)) as file:
            columns = tuple(name for name in file.schema_arrow.names if name != _INDEX)
            count = int(file.metadata.num_rows)
        check_columns(path, columns)
        digest = _guarded(path, lambda: sha256(path))
        return cls(path, columns, count, digest, (stat.st_size, stat.st_mtime_ns))

    def __reduce__(self) -> tuple[Callable[..., ParquetTable], tuple[Any, ...]]:
        return ParquetTable, (self.path, self.columns, self.count, self.digest, self.state)

    def __len__(self) -> int:
        return self.count

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.path.parent

    @property
    def identity(self) -> dict[str, str | int]:
        """The content of the file."""
        return {"kind": "table", "sha256": self.digest, "queries": self.count}

    def rows(self, first: int, count: int) -> Iterator[Row]:
        """Some rows in their order; see `Source.rows`."""
        for piece in range(first, min(first + count, self.count), PIECE):
            stat = _guarded(self.path, self.path.stat)
            if (stat.st_size, stat.st_mtime_ns) != self.state:
                raise DataError(f"{self.path}: has changed while it was read. Repeat the command.")
            if not self.reader or self.reader[0].next > piece:
                self.reader[:] = [_Forward(self.path, self.columns)]
            for number, value in enumerate(self.reader[0].piece(piece), piece + 1):
                yield Row(number, f"{self.path}, row {number}", value, name=str(number))


class _Forward:
    """A file that is read forward, piece by piece.

    Attributes:
        next: Number of the row that is read next.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path, self.next = path, 0
        _, parquet = pyarrow_of(path, "queries")
        # bounded memory: a reader keeps what it has read of a row group until its end, and of
        # several until the end of all
        file = _guarded(path, lambda: parquet.ParquetFile(path, buffer_size=_BUFFER))
        self.batches = (
            batch
            for group in range(file.num_row_groups)
            for batch in file.iter_batches(
                PIECE, row_groups=[group], columns=list(columns), use_threads=False
            )
        )
        self.left: list[Any] = []  # of a batch that was cut at the end of a row group

    def piece(self, first: int) -> list[dict[str, Any]]:
        """The rows of the piece that begins at a row, which is not yet read."""
        while True:
            piece = self._piece()
            if self.next > first or not piece:
                return [
                    {name: _plain(name, batch.column(name), row) for name in batch.schema.names}
                    for batch in piece
                    for row in range(batch.num_rows)
                ]

    def _piece(self) -> list[Any]:
        """The next `PIECE` rows, in batches; fewer at the end."""
        found: list[Any] = []
        missing = PIECE
        while missing:
            batch = self.left.pop() if self.left else _guarded(self.path, self._batch)
            if batch is None:
                break
            if batch.num_rows > missing:
                self.left.append(batch.slice(missing))
                batch = batch.slice(0, missing)
            found.append(batch)
            missing -= batch.num_rows
        self.next += PIECE - missing
        return found

    def _batch(self) -> Any:
        return next(self.batches, None)


def _plain(name: str, column: Any, row: int) -> Any:
    """A cell; numbers in a list as an array.

    Of whole numbers pandas makes floating-point ones where a cell is empty.
    """
    scalar = column[row]
    values = getattr(scalar, "values", None)
    if values is not None and str(values.type) in ("float", "double", "halffloat"):
        return values.to_numpy(zero_copy_only=False)
    value = scalar.as_py()
    if isinstance(value, float) and np.isnan(value):
        return None
    if isinstance(value, float) and name in ("id", "task") and value.is_integer():
        return int(value)
    return value


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    """What `read` gives; what damaged files make it raise becomes a `DataError`."""
    pyarrow, _ = pyarrow_of(path, "queries")
    try:
        return read()
    except (pyarrow.ArrowException, OSError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:200].rstrip(".")
        raise DataError(f"{path}: cannot be read as Parquet ({reason}). {EXPECTED}") from problem
