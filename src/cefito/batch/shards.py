"""A part of a batch in a file of its own: written whole, and believed only after a look.

Each line of a shard is a letter, a space and a row: `p` for a plan, `b` for a query that could not
be planned. The last line, `s`, says what the shard is, with the digest of all lines before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cefito.batch.planning import plan_rows
from cefito.batch.query_rows import Asked
from cefito.batch.rows import PIECE, Source
from cefito.files import write_bytes
from cefito.hashes import unsealed, value_sealed
from cefito.runs.run import Run, open_run
from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = ["ShardPlanner", "Shards", "Sums"]


class Sums(Record):
    """How many there are of what a batch gives.

    Attributes:
        queries: Queries, planned or not.
        plans: Plans of all of them.
        bad: Queries that could not be planned.
    """

    queries: int = 0
    plans: int = 0
    bad: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            queries=self.queries + other.queries,
            plans=self.plans + other.plans,
            bad=self.bad + other.bad,
        )


class _Seal(Record):
    """The last line of a shard.

    Attributes:
        key: Digest of all that the batch depends on.
        number: Which shard it is, from 0.
        sums: What is in it.
        files: Size and time of each file that observations were read from; empty if it was gone.
        rows: Digest of the lines before.
    """

    key: str
    number: int
    sums: Sums
    files: dict[str, tuple[int, ...]]
    rows: str


@dataclass(frozen=True)
class Shards:
    """The shards of a batch.

    Attributes:
        folder: Where they lie.
        key: Digest of all that the batch depends on.
        size: Queries of each but the last, a multiple of `PIECE`.
        queries: Queries of all.
    """

    folder: Path
    key: str
    size: int
    queries: int

    def __len__(self) -> int:
        return -(-self.queries // self.size)

    def path(self, number: int) -> Path:
        """The file of a shard."""
        return self.folder / f"{number:08d}.shard"

    def count(self, number: int) -> int:
        """How many queries a shard is of."""
        return min(self.size, self.queries - number * self.size)

    def sums(self, number: int) -> Sums | None:
        """What is in a shard; None where it is not there, not whole, or not of this batch any more.

        A file of observations that has changed since makes it one of another batch.
        """
        path, digest, last = self.path(number), hashlib.sha256(), b""
        try:
            with path.open("rb") as file:
                for line in file:
                    digest.update(last)
                    last = line
            entries, whole = unsealed(json.loads(last.removeprefix(b"s ")))
            seal = _Seal.model_validate(entries)
        except (OSError, ValueError, AttributeError, ValidationError):
            return None
        whole = whole and last.startswith(b"s ") and seal.rows == digest.hexdigest()
        same = (seal.key, seal.number) == (self.key, number)
        if not (whole and same and seal.sums.queries == self.count(number)):
            return None
        return seal.sums if all(_state(Path(name)) == s for name, s in seal.files.items()) else None

    def write(self, number: int, lines: list[str], sums: Sums, files: list[Path]) -> None:
        """Write a shard, whole or not at all.

        Raises:
            RunError: The file cannot be written.
        """
        text = "".join(f"{line}\n" for line in lines).encode()
        seal = _Seal(
            key=self.key,
            number=number,
            sums=sums,
            files={str(path): _state(path) for path in files},
            rows=hashlib.sha256(text).hexdigest(),
        )
        last = json.dumps(value_sealed(seal.model_dump(mode="json")))
        write_bytes(self.path(number), text + f"s {last}\n".encode())

    def lines(self, number: int, letter: str) -> Iterator[bytes]:
        """The rows of one kind in a shard, each with the end of its line."""
        begin = f"{letter} ".encode()
        with self.path(number).open("rb") as file:
            for line in file:
                if line.startswith(begin):
                    yield line[len(begin) :]


@dataclass(frozen=True)
class ShardPlanner:
    """Plans the queries of shards, and writes these.

    It can be sent to another process, which opens the run anew, once.

    Attributes:
        run: The run.
        device: Where it plans.
        source: Where queries stand.
        asked: What is asked of all.
        shards: Where shards lie.
        threads: Threads to compute with.
    """

    run: Run
    device: str
    source: Source
    asked: Asked
    shards: Shards
    threads: int

    def __reduce__(self) -> tuple[Callable[..., ShardPlanner], tuple[Any, ...]]:
        planner = self.run.planner
        search = planner.describe().search if planner.abilities.search else None
        folder = str(self.run.folder)
        rest = (self.device, self.source, self.asked, self.shards, self.threads)
        return _opened, (folder, search, *rest)

    def __call__(self, number: int) -> None:
        """Plan a shard and write it.

        Raises:
            DataError: The source cannot be read any more.
            RunError: The shard cannot be written.
        """
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            self._plan(number)
        finally:
            torch.set_num_threads(before)

    def _plan(self, number: int) -> None:
        first, lines, sums = number * self.shards.size, list[str](), Sums()
        files: dict[Path, None] = {}
        for begin in range(first, first + self.shards.count(number), PIECE):
            rows = list(self.source.rows(begin, PIECE))
            found = plan_rows(self.run, rows, self.source.folder, self.asked)
            lines += [f"p {row.to_line()}" for row in found.plans]
            lines += [f"b {row.to_line()}" for row in found.bad]
            files |= dict.fromkeys(found.files)
            sums += Sums(queries=len(rows), plans=len(found.plans), bad=len(found.bad))
        self.shards.write(number, lines, sums, list(files))


def _opened(folder: str, search: SearchConfig | None, device: str, *rest: Any) -> ShardPlanner:
    import torch

    run = open_run(folder, device=torch.device(device))
    return ShardPlanner(run if search is None else run.with_search(search), device, *rest)


def _state(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return ()
    return stat.st_size, stat.st_mtime_ns
