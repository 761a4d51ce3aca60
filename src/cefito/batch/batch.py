"""Plans of any number of queries into one file, by any executor, resumed wherever it was stopped.

PLANS                a row a plan, in the order of the queries: JSONL or Parquet
PLANS.bad.jsonl      queries that could not be planned, with the reason; absent where all could
PLANS.batch.json     `BatchRecord`: what the plans depend on, how many they are, their digest
PLANS.parts/         shards while it lasts, with batch.json; removed at the end

A shard is a job of the executor, which reads its queries itself and writes one file. What is done
is therefore found again after an end at any moment, and neither queries nor plans are ever held all
at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cefito.batch.parquet import pyarrow_of
from cefito.batch.plan_rows import plan_schema
from cefito.batch.query_rows import PLAIN, Asked
from cefito.batch.rows import PIECE
from cefito.batch.shards import ShardPlanner, Shards, Sums
from cefito.batch.sources import open_source
from cefito.errors import ConfigError, RunError
from cefito.executors import Done, Failed, Killed, Outcome, make_executor
from cefito.files import read_json, sha256, write_atomic, write_json
from cefito.hashes import unsealed, value_digest, value_sealed
from cefito.locks import locked
from cefito.planners.base import check_min_probability, check_task_given
from cefito.planners.registry import methods_with
from cefito.progress import Progress, silent
from cefito.runs.manifest import MANIFEST, read_manifest
from cefito.runs.run import Run
from cefito.settings import Record, flattened

__all__ = ["PLAN_FILES", "Batch", "BatchRecord", "plan_batch"]

PLAN_FILES = (".jsonl", ".parquet")
"""Endings of files that plans can be written into."""
SHARD = 512
"""Queries of a shard, unless told otherwise."""
_ROWS = 8192  # of Parquet that are written together
_INFO = "batch.json"


class BatchRecord(Record):
    """What is kept of a finished batch.

    Attributes:
        depends_on: All that the plans depend on.
        sums: How many they are.
        plans_sha256: Digest of the file of plans.
        bad_sha256: Digest of the file of queries that could not be planned; None where there is
            none.
    """

    depends_on: dict[str, Any]
    sums: Sums
    plans_sha256: str
    bad_sha256: str | None


@dataclass(frozen=True)
class Batch:
    """What a batch came to.

    Attributes:
        plans: The file of plans.
        bad: The file of queries that could not be planned; None where there is none.
        sums: How many they are.
        before: Queries that were done when it began.
        problems: What went wrong with shards, a line each; where there is any, no file was written.
    """

    plans: Path
    bad: Path | None
    sums: Sums
    before: int
    problems: tuple[str, ...] = ()


def plan_batch(
    run: Run,
    queries: Path | str,
    out: Path | str,
    *,
    asked: Asked = PLAIN,
    split: str | None = None,
    executor: str | None = None,
    workers: int = 1,
    address: str | None = None,
    threads: int = 1,
    shard: int = SHARD,
    device: str = "cpu",
    progress: Progress = silent,
) -> Batch:
    """Plan queries into a file, or go on where that was stopped.

    Rows are the same whatever executor, workers and shards; they may differ in last bits between
    numbers of threads, devices and kinds of processors.

    Args:
        run: The run; other processes open it anew from its folder, with the search that it has.
        queries: As `cefito.batch.sources.open_source` takes them.
        out: `.jsonl`, or `.parquet` (needs pyarrow), a row a plan.
        asked: What is asked of all queries.
        split: Of a data set.
        executor: Name of the executor, as in `cefito.executors.EXECUTORS`; by default one worker
            works in this process, and several in processes of their own.
        workers: How many shards are worked on at the same time.
        address: Of a Ray cluster that runs.
        threads: Threads that each worker computes with.
        shard: Queries of a shard, a multiple of 64.
        device: Where to plan, as workers open it.
        progress: Shows progress.

    Raises:
        ConfigError: What is asked cannot be asked of the run, or no such executor, split or kind of
            file.
        DataError: The queries cannot be read, or there is none.
        RunError: Another batch lies where the plans go or works there, or these cannot be written.
    """
    queries, out = Path(queries), Path(out)
    _check(run, out, asked, threads=threads, shard=shard)
    mapping = make_executor(executor, workers=workers, address=address)
    source = open_source(run, queries, split=split)
    depends = {
        "format_version": 1,
        "queries": source.identity,
        "run": _run_identity(run),
        "asked": asked.model_dump(mode="json"),
        "threads": threads,
        "device": device,
        "shard": shard,
        "cefito": version("cefito"),
        "torch": version("torch"),
    }
    files = _Files(out)
    done = files.finished(depends)
    if done is not None:
        files.clear()
        return Batch(out, files.bad_there, done.sums, before=done.sums.queries)
    with locked(files.parts, "a batch"):
        files.begin(depends)
        shards = Shards(files.parts, value_digest(depends), shard, len(source))
        missing = [number for number in range(len(shards)) if shards.sums(number) is None]
        left = sum(map(shards.count, missing))
        planner = ShardPlanner(run, device, source, asked, shards, threads)
        with progress("planning", total=left) as advance:
            outcomes = mapping.map(
                planner, missing, advance=_by_queries(advance, left, len(missing))
            )
        problems = _problems(shards, missing, outcomes)
        if problems:
            return Batch(out, None, Sums(), len(source) - left, tuple(problems))
        sums = files.finish(depends, shards, progress)
    files.clear()
    return Batch(out, files.bad_there, sums, before=len(source) - left)


def _check(run: Run, out: Path, asked: Asked, *, threads: int, shard: int) -> None:
    """Refuse what cannot be, before anything is read."""
    for setting, number in (("threads", threads), ("top_k", asked.top_k)):
        if number < 1:
            raise ConfigError(f"{setting} {number}: expected at least 1.", setting=setting)
    if shard < 1 or shard % PIECE:
        raise ConfigError(
            f"{shard} queries a shard: expected a multiple of {PIECE}.", setting="shard"
        )
    if asked.constraints != PLAIN.constraints and not run.planner.abilities.constraints:
        raise ConfigError(
            f"{run.planner.name} cannot obey constraints; of the methods only "
            f"{methods_with('constraints')} can. Leave them out."
        )
    if asked.task is not None:
        check_task_given(run.planner)
    if asked.min_probability is not None:
        check_min_probability(run.planner, asked.min_probability)
    if out.suffix not in PLAN_FILES:
        raise ConfigError(
            f"{out}: expected a file that ends in {' or '.join(PLAN_FILES)}.", setting="out"
        )
    if not out.resolve().parent.is_dir():
        raise ConfigError(f"{out}: there is no such folder to write it into.", setting="out")
    if out.is_dir():
        raise ConfigError(f"{out}: is a folder. Choose another name.", setting="out")
    if out.suffix == ".parquet":
        pyarrow_of(out, "out")


def _run_identity(run: Run) -> dict[str, Any]:
    """What tells whether the run plans as it did."""
    manifest = run.folder / MANIFEST
    if manifest.exists():
        hashes = read_manifest(manifest).files
    else:  # of an earlier version
        hashes = {path.name: sha256(path) for path in sorted(run.folder.glob("*.safetensors"))}
        hashes |= {
            path.name: sha256(path)
            for path in sorted(run.folder.glob("*.json"))
            if not path.name.startswith("evaluation")
        }
    search = run.planner.describe().search
    return {
        "files": value_digest(hashes),
        "method": run.method,
        "horizon": run.horizon,
        "search": None if search is None else search.model_dump(mode="json"),
    }


def _by_queries(
    advance: Callable[[float], None], queries: int, shards: int
) -> Callable[[float], None]:
    """A progress in shards, told in queries."""

    def advanced(count: float = 1) -> None:
        advance(count * queries / shards)

    return advanced


def _problems(shards: Shards, missing: list[int], outcomes: list[Outcome[None]]) -> list[str]:
    """What went wrong with shards."""
    found = []
    for number, outcome in zip(missing, outcomes, strict=True):
        first = number * shards.size + 1
        place = f"queries {first} to {first + shards.count(number) - 1}"
        if not isinstance(outcome, Done) and shards.sums(number) is not None:
            continue  # it ended behind its last word
        if isinstance(outcome, Failed):
            error = outcome.error.rstrip(".").removeprefix("DataError: ").removeprefix("RunError: ")
            found.append(f"{place}: {error}.")
        elif isinstance(outcome, Killed):
            found.append(
                f"{place}: their process was killed (signal {outcome.signal}), perhaps for want of "
                "memory."
            )
    return found


class _Files:
    """The files of a batch.

    Attributes:
        out: Of plans.
        bad: Of queries that could not be planned.
        record: What is kept of the finished batch.
        parts: Folder of its shards.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.bad, self.record, self.parts = (
            out.with_name(out.name + ending) for ending in (".bad.jsonl", ".batch.json", ".parts")
        )

    @property
    def bad_there(self) -> Path | None:
        """The file of queries that could not be planned; None where there is none."""
        return self.bad if self.bad.exists() else None

    def finished(self, depends: dict[str, Any]) -> BatchRecord | None:
        """The record of this very batch, where it is finished and its files are whole.

        Raises:
            RunError: Something else lies where the plans go.
        """
        if self.record.exists() and self.out.exists():
            remedy = f"Remove it and {self.out.name}, or choose another name."
            value = read_json(self.record, remedy, RunError)
            try:
                entries, whole = unsealed(value)
                record = BatchRecord.model_validate(entries)
            except (ValidationError, AttributeError, TypeError) as problem:
                raise RunError(f"{self.record}: is no record of a batch. {remedy}") from problem
            if not whole:
                raise RunError(f"{self.record}: has changed since it was written. {remedy}")
            _same(record.depends_on, depends, self.record, remedy)
            kept = (_digest(self.out), _digest(self.bad))
            if kept == (record.plans_sha256, record.bad_sha256):
                return record
            if not (self.parts / _INFO).exists():
                raise RunError(
                    f"{self.out}: has changed since it was planned (its SHA-256 differs from "
                    f"{self.record.name}). {remedy}",
                    setting="out",
                )
        elif self.out.exists() and not (self.parts / _INFO).exists():
            raise RunError(
                f"{self.out}: exists already. Choose another name or remove it.", setting="out"
            )
        return None

    def begin(self, depends: dict[str, Any]) -> None:
        """Say what the batch depends on, or see that it is what was begun.

        Raises:
            RunError: Another batch was begun there.
        """
        path = self.parts / _INFO
        if path.exists() and any(self.parts.glob("*.shard")):  # else nothing was done
            remedy = f"Remove {self.parts}, or choose another name for the plans."
            value = read_json(path, remedy, RunError)
            entries, whole = unsealed(value) if isinstance(value, dict) else ({}, False)
            if not whole:
                raise RunError(f"{path}: has changed since it was written. {remedy}")
            _same(entries, depends, path, remedy)
            return
        strange = [
            entry.name
            for entry in self.parts.iterdir()
            if not (entry.name.startswith(".") or entry.name == _INFO)
        ]
        if strange:
            raise RunError(
                f"{self.parts}: holds something else ('{min(strange)}'). Remove it, or choose "
                "another name for the plans.",
                setting="out",
            )
        write_json(path, value_sealed(depends))

    def finish(self, depends: dict[str, Any], shards: Shards, progress: Progress) -> Sums:
        """Join the shards.

        Raises:
            RunError: A shard was lost meanwhile, or a file cannot be written.
        """
        sums = Sums()
        for number in range(len(shards)):
            part = shards.sums(number)
            if part is None:
                raise RunError(
                    f"{shards.path(number)}: is not what was written, or files of its queries have "
                    "changed. Repeat the command."
                )
            sums += part
        with progress("writing", total=len(shards)) as advance:
            if self.out.suffix == ".parquet":
                self._parquet(shards, advance)
            else:
                _joined(self.out, shards, "p", advance)
        if sums.bad:
            _joined(self.bad, shards, "b", lambda _: None)
        else:
            self.bad.unlink(missing_ok=True)
        record = BatchRecord(
            depends_on=depends,
            sums=sums,
            plans_sha256=_digest(self.out) or "",
            bad_sha256=_digest(self.bad),
        )
        write_json(self.record, value_sealed(record.model_dump(mode="json")))
        return sums

    def clear(self) -> None:
        """Remove the shards of a finished batch."""
        if not self.parts.is_dir():
            return
        with suppress(RunError), locked(self.parts, "the end of a batch"):
            for entry in self.parts.iterdir():
                if entry.suffix == ".shard" or entry.name == _INFO:
                    entry.unlink(missing_ok=True)
        with suppress(OSError):  # it holds what is not ours
            self.parts.rmdir()

    def _parquet(self, shards: Shards, advance: Callable[[float], None]) -> None:
        pyarrow, parquet = pyarrow_of(self.out, "out")
        schema = plan_schema(pyarrow)

        def fill(path: Path) -> None:
            rows = _rows(shards, advance)
            with parquet.ParquetWriter(path, schema) as writer:
                while some := list(islice(rows, _ROWS)):
                    writer.write_table(pyarrow.Table.from_pylist(some, schema=schema))

        write_atomic(self.out, fill)


def _rows(shards: Shards, advance: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    for number in range(len(shards)):
        yield from map(json.loads, shards.lines(number, "p"))
        advance(1)


def _joined(path: Path, shards: Shards, letter: str, advance: Callable[[float], None]) -> None:
    """Write the rows of one kind of all shards into a file."""

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for number in range(len(shards)):
                file.writelines(shards.lines(number, letter))
                advance(1)

    write_atomic(path, fill)


def _digest(path: Path) -> str | None:
    return sha256(path) if path.exists() else None


def _same(begun: dict[str, Any], asked: dict[str, Any], path: Path, remedy: str) -> None:
    """Refuse to go on with something else.

    Raises:
        RunError: Something differs; the message names the first.
    """
    before, now = (flattened(json.loads(json.dumps(value))) for value in (begun, asked))
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise RunError(
                f"{path}: is of a batch with {name} {_short(before.get(name))}, and not "
                f"{_short(now.get(name))}. {remedy}",
                setting="out",
            )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:17] + "…" + text[-1:]
