"""Plans of any number of queries into one file, by any executor; resumed after an interruption.

A shard is a job, which plans its rows and writes one file; neither queries nor plans are ever all
in memory. `_Files` lists the files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from cefito.batch.planning import PIECE, QuerySettings
from cefito.batch.shards import Counts, ShardHeader, ShardPlanner, ShardRows, Shards, files_digest
from cefito.batch.sources import QuerySource, open_source
from cefito.errors import ConfigError, RunError
from cefito.executors import Failed, Killed, Outcome, make_executor
from cefito.files import (
    MAX_BYTES,
    FileRecord,
    read_json,
    sha256,
    value_digest,
    write_atomic,
    write_json,
)
from cefito.inference.answer import Asked
from cefito.inference.plan_formats import format_of
from cefito.locks import locked
from cefito.planners.given import Given
from cefito.planners.queries import Queries
from cefito.progress import Progress, silent
from cefito.runs.run import Run
from cefito.settings import flattened

logger = logging.getLogger(__name__)

_DEFAULTS = QuerySettings()
_SHARD = 512  # queries
_BEGUN = "batch.json"


class BatchRecord(FileRecord):
    """Record of a finished batch."""

    what: ClassVar[str] = "batch's record"
    remedy: ClassVar[str] = "Remove it and the plans, or choose another name."
    sealed: ClassVar[bool] = True
    most: ClassVar[int] = MAX_BYTES

    depends_on: dict[str, Any]  # all that the plans depend on
    counts: Counts
    shards: list[ShardHeader]
    plans_sha256: str
    bad_sha256: str | None


@dataclass(frozen=True)
class BatchResult:
    """Result of a batch."""

    plans: Path
    bad: Path | None  # file of the queries that could not be planned; None if all could
    counts: Counts
    done_before: int  # queries that were already done at the start
    changed: int = 0  # queries planned again, since files named there had changed
    problems: tuple[str, ...] = ()  # failures of shards; if there are any, no file was written


def plan_batch(
    run: Run,
    queries: Path | str,
    out: Path | str,
    *,
    settings: QuerySettings = _DEFAULTS,
    split: str | None = None,
    executor: str | None = None,
    workers: int = 1,
    address: str | None = None,
    threads: int = 1,
    shard: int = _SHARD,
    device: str = "cpu",
    progress: Progress = silent,
    **flags: bool,
) -> BatchResult:
    """Plan queries into a file, or resume an interrupted batch.

    Rows do not depend on executor, workers and shards; last bits may depend on the number of
    threads, the device and the kind of processor.

    Args:
        run: The run; other processes open its folder again, with the same search.
        queries: See `cefito.batch.sources.open_source`.
        out: File of the plans, with an ending of `cefito.inference.plan_formats.FORMATS`.
        settings: Settings of all queries.
        split: Split of a data set.
        executor: See `cefito.executors.make_executor`.
        workers: Number of shards that are planned at the same time.
        address: Address of a running Ray cluster.
        threads: Threads of each worker.
        shard: Queries of a shard, a multiple of 64.
        device: Device of the run in other processes.
        progress: Shows progress.
        flags: What is given of the windows of a data set: without_goal and after_done of `Given`.

    Raises:
        ConfigError: Settings that the run cannot follow, or an unknown executor, split or ending.
        DataError: The queries cannot be read, or there is no query.
        RunError: Another batch has the same output, or the output cannot be written.
    """
    queries, out = Path(queries), Path(out)
    _check(run, out, settings, threads=threads, shard=shard)
    mapping = make_executor(executor, workers=workers, address=address)
    source = open_source(run, queries, split=split, given=Given.of(**flags))
    search = run.planner.describe().search
    depends_on = {
        "format_version": 1,
        "queries": {**source.identity, "queries": source.count},
        "run": {
            "files": value_digest(dict(run.files)),
            "method": run.method,
            "steps": run.steps,
            "search": None if search is None else search.model_dump(mode="json"),
        },
        "settings": settings.model_dump(mode="json"),
        "threads": threads,
        "device": device,
        "shard": shard,
        "cefito": version("cefito"),
        "torch": version("torch"),
    }
    files = _Files(out)
    shards = Shards(files.parts, shard, source.count, value_digest(depends_on))
    planner = ShardPlanner(run, device, source.folder, settings, shards, threads)
    record = files.finished(depends_on)
    changed = {*_changed(shards, source, record.shards if record else (), progress)}
    if record and not changed:
        files.clear()
        bad = files.bad if record.counts.bad else None
        return BatchResult(out, bad, record.counts, record.counts.queries)
    with locked(files.parts, "a batch"):
        files.begin(depends_on)
        if record:
            files.reopen(record, shards)
        there = [shards.header(number) for number in range(len(shards))]
        old = {*_changed(shards, source, [header for header in there if header], progress)}
        for number in old:
            shards.path(number).unlink()
        missing = [number for number, header in enumerate(there) if not header or number in old]
        again = sum(map(shards.queries_of, changed | old))
        if again:
            logger.warning("files of %d queries have changed; they are planned again", again)
        left = sum(map(shards.queries_of, missing))
        with progress("planning", total=left) as advance:
            outcomes = mapping.map(
                planner,
                ShardRows(source, shard, missing),
                advance=lambda ended: advance(ended * left / len(missing)),  # in queries
            )
        headers, problems = _results(shards, dict(zip(missing, outcomes, strict=True)))
        if problems:
            return BatchResult(out, None, Counts(), source.count - left, again, problems)
        counts = files.finish(depends_on, shards, headers)
    files.clear()
    return BatchResult(out, files.bad if counts.bad else None, counts, source.count - left, again)


def _changed(
    shards: Shards, source: QuerySource, headers: Sequence[ShardHeader], progress: Progress
) -> Iterator[int]:
    """Yield the shards whose rows name files with other contents than when they were planned."""
    digests = {header.number: header.files for header in headers if header.files}
    if digests:
        with progress("comparing files", total=len(digests)) as advance:
            for number, rows in ShardRows(source, shards.size, [*digests]):
                if files_digest(rows, source.folder) != digests[number]:
                    yield number
                advance()


def _check(run: Run, out: Path, settings: QuerySettings, *, threads: int, shard: int) -> None:
    """Refuse invalid arguments before anything is read."""
    if threads < 1:
        raise ConfigError(f"threads {threads}: expected at least 1.", setting="threads")
    if shard < 1 or shard % PIECE:
        raise ConfigError(f"shard {shard}: expected a multiple of {PIECE}.", setting="shard")
    if settings.coverage is not None:
        raise ConfigError(
            "sets of plans are given for single queries. Leave out the coverage.",
            setting="coverage",
        )
    nothing = np.zeros((1, run.planner.observation_dim), dtype=np.float32)
    Asked.of(settings, run, Queries(nothing, nothing))
    format_of(out, "out")


def _results(
    shards: Shards, outcomes: dict[int, Outcome[None]]
) -> tuple[list[ShardHeader], tuple[str, ...]]:
    """Return the headers of all shards, and a line for each missing shard."""
    headers, problems = [], []
    for number in range(len(shards)):
        header, outcome = shards.header(number), outcomes.get(number)
        if header is not None:  # perhaps of a worker that was killed after it had written
            headers.append(header)
            continue
        if isinstance(outcome, Failed):
            error = outcome.error.rstrip(".").removeprefix("DataError: ").removeprefix("RunError: ")
        elif isinstance(outcome, Killed):
            error = f"killed by signal {outcome.signal}, perhaps because memory ran out"
        else:
            error = "their file has changed meanwhile"
        problems.append(f"{shards.name(number)}: {error}.")
    return headers, tuple(problems)


class _Files:
    """Files of a batch.

    PLANS                one row a plan, in the order of the queries
    PLANS.bad.jsonl      queries that could not be planned, with the reason; absent if all could
    PLANS.batch.json     `BatchRecord`
    PLANS.parts/         shards and batch.json during the work; removed at the end
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.bad, self.record, self.parts = (
            out.with_name(out.name + ending) for ending in (".bad.jsonl", ".batch.json", ".parts")
        )

    def finished(self, depends_on: dict[str, Any]) -> BatchRecord | None:
        """Return the record if this batch is finished; refuse to overwrite other files."""
        if not self.out.exists():
            return None
        reason = "exists already"
        if self.record.exists():
            record = BatchRecord.read(self.record)
            remedy = f"To plan anew remove it and {self.out.name}, or choose another name."
            _check_same(record.depends_on, depends_on, self.record, remedy)
            digests = record.plans_sha256, record.bad_sha256
            if (_digest(self.out), _digest(self.bad)) == digests:
                return record
            reason = "has changed since it was planned"
        if (self.parts / _BEGUN).exists():
            return None
        raise RunError(f"{self.out}: {reason}. Remove it, or choose another name.", setting="out")

    def begin(self, depends_on: dict[str, Any]) -> None:
        """Note what the batch depends on; if shards exist, refuse those of another batch."""
        path = self.parts / _BEGUN
        if path.exists() and any(self.parts.glob("*.shard")):
            remedy = f"Remove {self.parts}, or choose another name for the plans."
            _check_same(read_json(path, remedy, RunError), depends_on, path, remedy)
            return
        write_json(path, depends_on)

    def reopen(self, record: BatchRecord, shards: Shards) -> None:
        """Write the shards of a finished batch again; of lines of JSON, others are lost."""
        if self.out.suffix != ".jsonl":
            return
        with ExitStack() as stack:
            plans = stack.enter_context(self.out.open("rb"))
            bad = stack.enter_context(self.bad.open("rb")) if record.counts.bad else ()
            for header in record.shards:
                rows = [*islice(plans, header.counts.plans), *islice(bad, header.counts.bad)]
                if not shards.path(header.number).exists():
                    shards.write(header, b"".join(rows))

    def finish(
        self, depends_on: dict[str, Any], shards: Shards, headers: Sequence[ShardHeader]
    ) -> Counts:
        """Concatenate the shards, write the record, and return the counts."""
        counts = sum((header.counts for header in headers), Counts())
        _write(self.out, partial(format_of(self.out, "out").write, shards.lines()))
        if counts.bad:
            _write(self.bad, lambda file: file.writelines(shards.lines(bad=True)))
        else:
            self.bad.unlink(missing_ok=True)
        BatchRecord(
            depends_on=depends_on,
            counts=counts,
            shards=list(headers),
            plans_sha256=sha256(self.out),
            bad_sha256=_digest(self.bad),
        ).write(self.record)
        return counts

    def clear(self) -> None:
        """Remove the shards of a finished batch."""
        if not self.parts.is_dir():
            return
        with suppress(RunError), locked(self.parts, "the end of a batch"):
            for entry in self.parts.iterdir():
                if entry.suffix == ".shard" or entry.name == _BEGUN:
                    entry.unlink(missing_ok=True)
        with suppress(OSError):  # other files are in it
            self.parts.rmdir()


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            write(file)

    write_atomic(path, fill)


def _digest(path: Path) -> str | None:
    return sha256(path) if path.is_file() else None


def _check_same(begun: Any, wanted: dict[str, Any], path: Path, remedy: str) -> None:
    """Refuse to continue another batch; the message names the first difference."""
    before, now = (flattened(json.loads(json.dumps(value))) for value in (begun, wanted))
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            old, new = (
                json.dumps(values.get(name), ensure_ascii=False) for values in (before, now)
            )
            both = f"{name} {old[:40]}, not {new[:40]}"
            raise RunError(f"{path}: is of a batch with {both}. {remedy}", setting="out")
