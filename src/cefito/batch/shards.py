"""Shards: files with the plans of a part of a batch, each written as a whole.

The first line of a shard is a `ShardHeader`; then come the rows of plans, then the bad rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cefito.batch.planning import PIECE, PlannedRows, plan_rows
from cefito.batch.query_rows import QuerySettings
from cefito.batch.sources import QuerySource, Row, file_state
from cefito.errors import DataError
from cefito.files import write_bytes
from cefito.runs.run import Run, open_run
from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = ["Counts", "ShardPlanner", "ShardRows", "Shards"]


class Counts(Record):
    """Numbers of queries, plans and queries that could not be planned."""

    queries: int = 0
    plans: int = 0
    bad: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + getattr(other, name) for name, count in self})


class ShardHeader(Record):
    """First line of a shard."""

    counts: Counts
    size: int  # bytes of the rows
    files: dict[str, tuple[int, ...]]  # `file_state` of each file that observations were read from


@dataclass(frozen=True)
class Shards:
    """The shards of a batch: `queries` queries, `size` (a multiple of `PIECE`) in each."""

    folder: Path
    size: int
    queries: int

    def __len__(self) -> int:
        return -(-self.queries // self.size)

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:08d}.shard"

    def queries_of(self, number: int) -> int:
        """Return the number of queries of a shard."""
        return min(self.size, self.queries - number * self.size)

    def counts(self, number: int) -> Counts | None:
        """Return the counts of a shard; None if it is missing, truncated or out of date."""
        path = self.path(number)
        try:
            with path.open("rb") as file:
                header = ShardHeader.model_validate_json(file.readline())
                whole = file.tell() + header.size == path.stat().st_size
        except (OSError, ValueError):
            return None
        same = all(file_state(Path(name)) == state for name, state in header.files.items())
        return header.counts if whole and same else None

    def lines(self, number: int, *, bad: bool = False) -> Iterator[bytes]:
        """Yield the plans of a shard, or its bad rows, each with the end of its line."""
        with self.path(number).open("rb") as file:
            plans = ShardHeader.model_validate_json(file.readline()).counts.plans
            yield from islice(file, plans, None) if bad else islice(file, plans)


class ShardRows(Sequence[tuple[int, list[Row]]]):
    """Numbers and rows of some shards (ascending), read from a source during the iteration."""

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
        rest = (self.device, self.folder, self.settings, self.shards, self.threads)
        return _reopened, (str(self.run.folder), search, *rest)

    def __call__(self, shard: tuple[int, list[Row]]) -> None:
        """Plan a shard, given as its number and its rows, and write it."""
        import torch

        (number, rows), before = shard, torch.get_num_threads()
        planned = PlannedRows()
        torch.set_num_threads(self.threads)
        try:
            for first in range(0, len(rows), PIECE):
                found = plan_rows(self.run, rows[first : first + PIECE], self.folder, self.settings)
                planned.plans += found.plans
                planned.bad += found.bad
                planned.files += found.files
        finally:
            torch.set_num_threads(before)
        values = (row.model_dump(mode="json") for row in (*planned.plans, *planned.bad))
        lines = (json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values)
        text = "".join(f"{line}\n" for line in lines).encode()
        header = ShardHeader(
            counts=Counts(queries=len(rows), plans=len(planned.plans), bad=len(planned.bad)),
            size=len(text),
            files={str(path): file_state(path) for path in sorted(set(planned.files))},
        )
        first_line = header.model_dump_json().encode() + b"\n"
        write_bytes(self.shards.path(number), first_line + text)


def _reopened(folder: str, search: SearchConfig | None, device: str, *rest: Any) -> ShardPlanner:
    import torch

    run = open_run(folder, device=torch.device(device))
    return ShardPlanner(run if search is None else run.with_search(search), device, *rest)
