"""Many queries from one file, JSONL or CSV: two moments of a file of features, or two files, each.

For windows of an annotated data set there is `cefito.evaluation.evaluate_run`, which plans all.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from cefito.data.names import find_task
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.planners.base import Queries
from cefito.planners.named import Name, NamedConstraints
from cefito.planners.observations import Precision, query_from_features
from cefito.planners.query import query_from_files
from cefito.planners.run import Run
from cefito.settings import Frozen

__all__ = ["QUERY_FILES", "AskedQuery", "read_queries"]

QUERY_FILES = (".jsonl", ".csv")
"""Endings of files that queries can stand in."""
_EXPECTED = (
    "Expected features, start and end, or initial and goal, and id if you like, in each line."
)


class _Line(Frozen):
    """One line: which query it is, with files relative to the folder of the list."""

    id: str | None = None
    features: Path | None = None
    start: float | None = None
    end: float | None = None
    initial: Path | None = None
    goal: Path | None = None
    task: Name | None = None
    constraints: NamedConstraints | None = None


@dataclass(frozen=True)
class AskedQuery:
    """A query of a list.

    Attributes:
        id: Its name: as given, otherwise the number of its line.
        query: The query.
        task: Id of its task, where it is given.
        constraints: What its plans must satisfy, besides what is asked of all.
    """

    id: str
    query: Queries
    task: int | None = None
    constraints: NamedConstraints | None = None


def read_queries(
    run: Run,
    path: Path | str,
    *,
    seconds: int | None = None,
    precision: Precision | None = None,
) -> list[AskedQuery]:
    """Read a list of queries, and the observations of all of them.

    Args:
        run: The run that is to plan.
        path: JSONL, one object a line, or CSV with a head. Each line has `features`, `start` and
            `end`, as `query_from_features` takes them, or `initial` and `goal`, as
            `query_from_files`; and, if you like, `id`, `task`, by name or id, and, in JSONL,
            `constraints`, an object with the fields of `NamedConstraints`. Files are found from the
            folder of the list.
        seconds: As in `query_from_features`.
        precision: As in `query_from_features`.

    Raises:
        ConfigError: Another ending than `QUERY_FILES`, or times that features do not have.
        DataError: The list or a file cannot be read, a line is no query, an id occurs twice, or
            there is no line at all; the message names the line.
        RunError: Features or observations that do not fit the run.
    """
    path = Path(path)
    if path.suffix not in QUERY_FILES:
        raise ConfigError(
            f"{path}: expected a list of queries that ends in {' or '.join(QUERY_FILES)}.",
            setting="queries",
        )
    asked: dict[str, AskedQuery] = {}
    for number, value in _lines(path):
        place = f"{path}, line {number}"
        line = _parsed(value, place)
        name = str(number) if line.id is None else line.id
        if name in asked:
            raise DataError(f"{place}: id '{name}' occurs twice. Give each query its own.")
        try:
            task = None if line.task is None else find_task(run.taxonomy, line.task)
            if line.constraints is not None:  # refused here, where the line is known
                line.constraints.resolved(run.taxonomy, task=task)
            query = _query(run, line, path.parent, seconds, precision)
            asked[name] = AskedQuery(name, query, task, line.constraints)
        except CefitoError as problem:
            _raise(problem, place)
    if not asked:
        raise DataError(f"{path}: holds no query. {_EXPECTED}")
    return list(asked.values())


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines that are not empty, with their numbers, counted from 1."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. {_EXPECTED}", setting="queries") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path}: cannot be read ({problem}). Save it as UTF-8.") from problem
    if path.suffix == ".csv":
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(
                        f"{path}, line {reader.line_num}: has not as many cells as the head. "
                        "Mend the line."
                    )
                yield reader.line_num, {key: cell for key, cell in row.items() if cell.strip()}
        except csv.Error as problem:
            raise DataError(f"{path}: not readable as CSV ({problem}). Mend it.") from problem
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise DataError(
                    f"{path}, line {number}: not valid JSON ({problem}). {_EXPECTED}"
                ) from problem


def _parsed(value: Any, place: str) -> _Line:
    try:
        line = _Line.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise DataError(f"{place}: is no query ({reason}). {_EXPECTED}") from problem
    given = {name for name, part in line if part is not None} - {"id", "task", "constraints"}
    if given not in ({"features", "start", "end"}, {"initial", "goal"}):
        found = ", ".join(sorted(given)) or "nothing"
        raise DataError(f"{place}: is no query (found {found}). {_EXPECTED}")
    return line


def _query(
    run: Run, line: _Line, folder: Path, seconds: int | None, precision: Precision | None
) -> Queries:
    if line.initial is not None and line.goal is not None:
        return query_from_files(folder / line.initial, folder / line.goal, run)
    assert line.features is not None
    assert line.start is not None
    assert line.end is not None
    return query_from_features(
        run,
        folder / line.features,
        start=line.start,
        end=line.end,
        seconds=seconds,
        precision=precision,
    )


def _raise(problem: CefitoError, place: str) -> NoReturn:
    """The same error, with the line in front."""
    kinds = (ConfigError, DataError, RunError)
    kind = next((kind for kind in kinds if isinstance(problem, kind)), CefitoError)
    setting = problem.setting if problem.setting in ("seconds", "precision") else "queries"
    raise kind(f"{place}: {problem}", setting=setting) from problem
