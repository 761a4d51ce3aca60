"""Shards: files with the plans of a part of a batch, each written as a whole.

The first line of a shard is a `ShardHeader`; then come the rows of plans, then the bad rows.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch

from cefito.batch.planning import PIECE, BadRow, QuerySettings, plan_rows
from cefito.batch.sources import QuerySource, Row
from cefito.errors import DataError, RunError
from cefito.files import (
    MAX_JSON,
    FileRecord,
    check_regular,
    file_digest,
    value_digest,
    value_sealed,
    write_bytes,
)
from cefito.inference.plan_formats import PlanRow, json_line
from cefito.planners.shared.settings import PlanningConfig
from cefito.runs.run import Run, open_run
from cefito.settings import Record

logger = logging.getLogger(__name__)


class Counts(Record):
    """Numbers of queries, plans and queries that could not be planned."""

    queries: int = 0
    plans: int = 0
    bad: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + getattr(other, name) for name, count in self})


class ShardHeader(FileRecord):
    """First line of a shard."""

    what: ClassVar[str] = "shard"
    sealed: ClassVar[bool] = True

    batch: str  # digest of all that the plans of the batch depend on
    number: int
    counts: Counts
    rows: str  # SHA-256 of the rows
    files: str  # as of `files_digest`


@dataclass(frozen=True)
class Shards:
    """The shards of a batch: `queries` queries, `size` (a multiple of `PIECE`) in each."""

    folder: Path
    size: int
    queries: int
    batch: str  # as in `ShardHeader`

    def __len__(self) -> int:
        return -(-self.queries // self.size)

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:08d}.shard"

    def queries_of(self, number: int) -> int:
        """Return the number of queries of a shard."""
        return min(self.size, self.queries - number * self.size)

    def name(self, number: int) -> str:
        """Name the queries of a shard."""
        first = number * self.size + 1
        return f"queries {first} to {first + self.queries_of(number) - 1}"

    def header(self, number: int) -> ShardHeader | None:
        """Return the header of a shard; None, and a warning, if it has changed or is out of date.

        None without a warning if it is missing.
        """
        path, reason = self.path(number), "has changed since it was written"
        if not path.exists():
            return None
        try:
            check_regular(path)
            with path.open("rb") as file:
                first = file.readline(MAX_JSON)
                header = ShardHeader.parse(json.loads(first), path)
                whole = header.rows == hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError, RecursionError, DataError, RunError):
            whole = False
        if whole and (header.batch, header.number) != (self.batch, number):
            whole, reason = False, "is of other queries"
        if not whole:
            logger.warning("%s %s; %s are planned again", path, reason, self.name(number))
        return header if whole else None

    def write(self, header: ShardHeader, rows: bytes) -> None:
        """Write a shard."""
        first = json.dumps(value_sealed(header.to_dict())).encode() + b"\n"
        write_bytes(self.path(header.number), first + rows)

    def lines(self, *, bad: bool = False) -> Iterator[bytes]:
        """Yield the plans of all shards, or their bad rows, each with the end of its line."""
        for number in range(len(self)):
            path = self.path(number)
            with path.open("rb") as file:
                plans = ShardHeader.parse(json.loads(file.readline()), path).counts.plans
                yield from islice(file, plans, None) if bad else islice(file, plans)


def files_digest(rows: Sequence[Row], folder: Path) -> str:
    """SHA-256 of the contents of all files that rows name; empty if they name none."""
    digests = []
    for path in (path for row in rows for path in row.parsed().files(folder)):
        digest = "not readable"  # a query that cannot be planned
        with suppress(OSError, ValueError):
            digest = file_digest(path) if path.is_file() else digest
        digests.append(digest)
    return value_digest(digests) if digests else ""


class ShardRows(Sequence[tuple[int, list[Row]]]):
    """Numbers and rows of some shards (ascending), read from a source during the iteration.

    Args:
        source: The queries.
        size: Number of rows of a shard.
        numbers: Numbers of the shards, ascending.
    """

    def __init__(self, source: QuerySource, size: int, numbers: Sequence[int]) -> None:
        self.source, self.size, self.numbers = source, size, numbers
        self._rows, self._next = source.rows(), 0  # number of the next row

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> tuple[int, list[Row]]:  # type: ignore[override]
        number = self.numbers[place]
        first = number * self.size
        skipped = first - self._next
        self._next = first + self.size
        rows = list(islice(self._rows, skipped, skipped + self.size))
        if len(rows) < min(self.size, self.source.count - first):  # also after an earlier error
            raise DataError(
                f"{self.source.folder}: the queries could not all be read. Repeat the command."
            )
        return number, rows


@dataclass(frozen=True)
class ShardPlanner:
    """Plans the rows of a shard and writes it; in another process it opens the run anew, once."""

    run: Run
    device: str
    folder: Path
    settings: QuerySettings
    shards: Shards
    threads: int

    def __reduce__(self) -> tuple[Callable[..., ShardPlanner], tuple[Any, ...]]:
        planner = self.run.planner
        search = planner.describe().search if planner.abilities.search else None
        options = (self.device, self.folder, self.settings, self.shards, self.threads)
        run = (str(self.run.folder), dict(self.run.files))
        return _reopened, (*run, search, self.run.chosen_steps, *options)

    def __call__(self, shard: tuple[int, list[Row]]) -> None:
        """Plan a shard, given as its number and its rows, and write it."""
        number, rows = shard[0], [row.parsed() for row in shard[1]]
        files, before = files_digest(rows, self.folder), torch.get_num_threads()
        plans: list[PlanRow] = []
        bad: list[BadRow] = []
        torch.set_num_threads(self.threads)
        try:
            for first in range(0, len(rows), PIECE):
                planned = plan_rows(
                    self.run, rows[first : first + PIECE], self.folder, self.settings
                )
                plans += planned[0]
                bad += planned[1]
        finally:
            torch.set_num_threads(before)
        text = b"".join(json_line(row) for row in (*plans, *bad))
        header = ShardHeader(
            batch=self.shards.batch,
            number=number,
            counts=Counts(queries=len(rows), plans=len(plans), bad=len(bad)),
            rows=hashlib.sha256(text).hexdigest(),
            files=files,
        )
        self.shards.write(header, text)


def _reopened(
    folder: str,
    files: dict[str, str],
    search: PlanningConfig | None,
    steps: tuple[int, int] | None,
    device: str,
    *options: Any,
) -> ShardPlanner:
    run = open_run(folder, device=torch.device(device))
    if run.files != files:
        raise RunError(f"{folder}: was replaced while it plans a batch. Repeat the command.")
    run = run if steps is None else run.with_steps(*steps)
    return ShardPlanner(run if search is None else run.with_search(search), device, *options)
