"""Formats of plans in files and on stdout, one function each.

To add a format, write a function and enter it in `FORMATS`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, get_args, get_origin

from cefito.errors import ConfigError, install_command
from cefito.files import check_target
from cefito.inference.answer import Answer
from cefito.markup import in_csv, in_markdown, percent
from cefito.settings import Record

_ROWS = 8192  # rows of Parquet that are written at once


class PlanRow(Record):
    """One plan of one query, as it is written; docs/plan-batch.md describes the columns."""

    query: str
    line: int
    rank: int
    actions: list[int]
    names: list[str]
    energy: float
    score: float
    probability: float | None
    task: str | None
    task_id: int | None
    length_probability: float | None  # of the number of its steps, if it is open
    exact: bool
    sure: bool | None
    searched_mass: float | None
    token_forwards: int
    leaves: int
    warnings: list[str]

    @classmethod
    def of(cls, answer: Answer, query: str, line: int) -> list[PlanRow]:
        """Return the rows of an answer, best plan first."""
        return [
            cls(
                query=query,
                line=line,
                rank=rank,
                **vars(plan),
                length_probability=(answer.lengths or {}).get(len(plan.actions)),
                exact=answer.exact,
                sure=answer.sure,
                searched_mass=answer.searched_mass,
                **vars(answer.evaluated),
                warnings=answer.warnings,
            )
            for rank, plan in enumerate(answer.plans, 1)
        ]


def json_line(row: Record) -> bytes:
    """Return a row as a line of JSON."""
    return row.model_dump_json().encode() + b"\n"


@dataclass(frozen=True)
class PlanFormat:
    """How plans are written."""

    ending: str  # of its files
    write: Callable[[Iterable[bytes], BinaryIO], None]  # rows, as lines of `json_line`, into a file
    binary: bool = False  # whether its files are not text


def write_parquet(lines: Iterable[bytes], file: BinaryIO) -> None:
    """Write a Parquet table; needs pyarrow."""
    pyarrow, parquet = import_pyarrow("parquet", "format")
    kinds = {name: _arrow_type(field.annotation) for name, field in PlanRow.model_fields.items()}
    schema, left = pyarrow.schema(kinds), map(json.loads, lines)
    with parquet.ParquetWriter(file, schema) as writer:
        while some := list(islice(left, _ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema=schema))


def _arrow_type(kind: Any) -> Any:
    pyarrow = import_module("pyarrow")
    if get_origin(kind) is list:
        return pyarrow.list_(_arrow_type(get_args(kind)[0]))
    if isinstance(kind, UnionType):  # X | None; every column may hold nulls
        return _arrow_type(get_args(kind)[0])
    names = {int: "int64", float: "float64", str: "string", bool: "bool"}
    return pyarrow.type_for_alias(names[kind])


def write_csv(lines: Iterable[bytes], file: BinaryIO) -> None:
    """Write CSV with a header; lists are JSON, and missing values are empty."""

    def cell(value: Any) -> Any:
        if isinstance(value, str):
            return in_csv(value)
        return value if value is None else json.dumps(value, ensure_ascii=False)

    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PlanRow.model_fields)
    writer.writerows(map(cell, json.loads(line).values()) for line in lines)
    text.detach()


def write_markdown(lines: Iterable[bytes], file: BinaryIO) -> None:
    """Write a Markdown table for people."""
    heads = ("query", "rank", "task", "probability", "score (lower is better)", "plan")

    def cells(row: PlanRow) -> tuple[str, ...]:
        likely = percent(row.probability)
        plan = " → ".join(row.names)
        return row.query, str(row.rank), row.task or "", likely, f"{row.score:z.4f}", plan

    rows = (tuple(map(in_markdown, cells(PlanRow.model_validate_json(line)))) for line in lines)
    for row in chain([heads, ("---",) * len(heads)], rows):
        file.write(f"| {' | '.join(row)} |\n".encode())


FORMATS: dict[str, PlanFormat] = {
    "jsonl": PlanFormat(".jsonl", lambda lines, file: file.writelines(lines)),
    "csv": PlanFormat(".csv", write_csv),
    "md": PlanFormat(".md", write_markdown),
    "parquet": PlanFormat(".parquet", write_parquet, binary=True),
}
"""All formats of plans by their names."""


def import_pyarrow(path: Path | str, setting: str) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as problem:
        raise ConfigError(
            f"{path}: pyarrow is not installed. Run {install_command('table')}, or use .jsonl.",
            setting=setting,
        ) from problem


def find_format(name: str) -> PlanFormat:
    """Return a format by its name; check that its library is installed."""
    if name not in FORMATS:
        formats = ", ".join(FORMATS)
        raise ConfigError(f"format '{name}': unknown. Choose one of {formats}.", setting="format")
    if name == "parquet":
        import_pyarrow(name, "format")
    return FORMATS[name]


def format_of(path: Path, setting: str) -> PlanFormat:
    """Return the format of a file; check that it can be written, before any work."""
    formats = {chosen.ending: chosen for chosen in FORMATS.values()}
    check_target(path, tuple(formats), setting)
    if path.suffix == ".parquet":
        import_pyarrow(path, setting)
    return formats[path.suffix]
