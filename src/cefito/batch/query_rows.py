"""Queries from rows: validate their content, and read the observations that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from cefito.batch.sources import EXPECTED, Columns, Row, open_table
from cefito.data.readers.feature_files import load_features
from cefito.errors import CefitoError, DataError, explained
from cefito.files import NOT_JSON
from cefito.inference.asked import Asked
from cefito.inference.query import Precision, query_from_features, query_from_files
from cefito.inference.question import Question
from cefito.inference.steps import planning
from cefito.planners.base import Queries
from cefito.planners.checks import check_partial
from cefito.runs.run import Run
from cefito.settings import first_error

__all__ = ["QueryRow", "QuerySettings", "query_from_row", "read_queries"]

_ENDS = ("initial", "goal")


class QuerySettings(Question):
    """What is asked of all queries of a source, as far as they do not say it themselves."""

    seconds: int | None = None  # see `cefito.inference.query.query_from_features`
    precision: Precision | None = None

    def check(self, run: Run) -> None:
        """Refuse what a run cannot follow, before anything is read (ConfigError)."""
        nothing = np.zeros((1, run.planner.observation_dim), dtype=np.float32)
        asked = self.model_copy(update={"coverage": None})  # whose conditions are each query's
        Asked.of(asked, run, Queries(nothing, nothing))


_DEFAULTS = QuerySettings()


@dataclass(frozen=True)
class QueryRow:
    """The query of a row."""

    id: str  # otherwise its line number
    line: int
    asked: Asked
    files: tuple[Path, ...] = ()  # that the observations were read from


def read_queries(run: Run, path: Path | str, settings: QuerySettings = _DEFAULTS) -> list[QueryRow]:
    """Read a short table of queries as a whole, with all observations.

    Each line has `features`, `start` and `end` (see `query_from_features`), or `initial` and
    `goal`: files (see `query_from_files`) or lists of numbers. Optional are `id`, `task` (name or
    id) and `constraints` (a `NamedConstraints` object, or its JSON as text). For a run of several
    lengths, `steps` (3 or "2-4"), `done` (names or ids of the actions done before, oldest first:
    a list, its JSON as text, or text with semicolons; [] if nothing was done yet) and `elapsed`
    (seconds between both observations) are optional, and one observation, a task or done steps are
    enough.

    Raises:
        CefitoError: A line is not a query or cannot be read.
    """
    settings.check(run)
    source = open_table(Path(path))
    found: dict[str, QueryRow] = {}
    for row in source.rows():
        query = query_from_row(run, row.parsed(), source.folder, settings)
        if query.id in found:
            raise DataError(f"{row.place}: id '{query.id}' occurs twice. Give each query its own.")
        found[query.id] = query
    if not found:
        raise DataError(f"{path}: holds no query. {EXPECTED}")
    return list(found.values())


def query_from_row(
    run: Run, row: Row, folder: Path, settings: QuerySettings = _DEFAULTS
) -> QueryRow:
    """Return the query of a parsed row; files are found relative to `folder`."""
    files: tuple[Path, ...] = ()
    try:
        if row.problem:
            raise DataError(row.problem)
        columns, lists = _validated(row)
        question, run = settings.with_facts(columns), planning(run, columns.steps)
        if lists:
            query = _query_from_lists(lists)
        else:
            query, files = _query_from_files(run, columns, folder, settings, whole=row.whole)
        if not query.whole:
            check_partial(run.planner, "queries")
        asked = Asked.of(question, run, query, any_task=True)  # so that a table serves all methods
    except CefitoError as problem:
        setting = problem.setting if problem.setting in ("seconds", "precision") else "queries"
        reason = str(problem).removeprefix(f"{row.place}: ")
        raise DataError(f"{row.place}: {reason}", setting=setting) from problem
    return QueryRow(columns.id or str(row.number), row.number, asked, files)


def _validated(row: Row) -> tuple[Columns, dict[str, Any]]:
    """Return the columns of a row, and its observations if they are lists of numbers."""
    value, lists = row.value, {}
    if isinstance(value, Mapping):
        value = {name: cell for name, cell in value.items() if cell is not None}
        for name in _ENDS:
            if isinstance(value.get(name), list | np.ndarray):
                lists[name] = value.pop(name)
        if type(value.get("id")) is int:
            value["id"] = str(value["id"])
        if "constraints" in value:
            value["constraints"] = _constraints(value["constraints"])
        if "done" in value:
            value["done"] = _done(value["done"])
    try:
        columns = Columns.model_validate(value)
    except ValidationError as problem:
        raise DataError(f"is not a query ({first_error(problem)}). {EXPECTED}") from problem
    sources = {"features", "start", "end", *_ENDS}
    given = {name for name, cell in columns if cell is not None} & sources | set(lists)
    if "features" in given:
        valid = not given & set(_ENDS) and (row.whole or len(given) > 1)
    else:
        said = bool(given) or columns.task is not None or columns.done is not None
        valid = given <= set(_ENDS) and len(lists) in (0, len(given)) and said
    if not valid:
        found = ", ".join(sorted(given)) or "nothing"
        raise DataError(f"is not a query (found {found}). {EXPECTED}")
    return columns, lists


def _constraints(given: Any) -> Any:
    """Return the constraints of a row: an object, or its JSON as text."""
    if isinstance(given, str):
        expected = 'Expected an object, as in {"forbidden": ["add ham"]}.'
        with explained("constraints", "not valid JSON", expected, *NOT_JSON):
            given = json.loads(given)
    if isinstance(given, Mapping):  # Parquet has a null for each field that is not given
        return {name: part for name, part in given.items() if part is not None}
    return given


def _done(given: Any) -> Any:
    """Return the actions done before: a list, its JSON as text, or text with semicolons.

    An empty list or text says that nothing was done yet.
    """
    if not isinstance(given, str):
        return tuple(given) if isinstance(given, list) else given
    if not given.lstrip().startswith("["):
        return tuple(part.strip() for part in given.split(";")) if given.strip() else ()
    with explained("done", "not valid JSON", 'Expected a list, as in ["boil"].', *NOT_JSON):
        return _done(json.loads(given))


def _query_from_lists(lists: Mapping[str, Any]) -> Queries:
    """Return the query of one or two lists of numbers [E]."""
    found = {}
    for name, given in lists.items():
        kinds = {type(number) for number in given} if isinstance(given, list) else {float}
        array = np.asarray(given if kinds <= {int, float} else [], dtype=np.float64)
        if not array.size or array.ndim != 1 or not np.isfinite(array).all():
            raise DataError(f"'{name}' is not a list of finite numbers. Give one observation [E].")
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused
            found[name] = array.astype(np.float32)
    initial, goal = (found.get(name) for name in _ENDS)
    return Queries.partial(size=len(next(iter(found.values()))), initial=initial, goal=goal)


def _query_from_files(
    run: Run, columns: Columns, folder: Path, settings: QuerySettings, *, whole: bool
) -> tuple[Queries, tuple[Path, ...]]:
    """Return the query of the files that a row names, and these files."""
    if columns.features is None:
        ends = (columns.initial, columns.goal)
        initial, goal = (None if path is None else folder / path for path in ends)
        files = tuple(path for path in (initial, goal) if path is not None)
        if not files:
            return Queries.partial(size=run.planner.observation_dim), ()
        return query_from_files(initial, goal, run), files
    features = load_features(folder / columns.features)
    start, end = (0.0, float(features.rows)) if whole else (columns.start, columns.end)
    how = settings.model_dump(include={"seconds", "precision"})
    return query_from_features(run, features, start=start, end=end, **how), (features.path,)
