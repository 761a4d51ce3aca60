"""Queries of rows and their plans: together if possible, each alone if one of them fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from cefito.batch.sources import EXPECTED, Columns, Row
from cefito.errors import CefitoError, DataError, explained, first_error
from cefito.files import NOT_JSON
from cefito.inference.answer import Answer, Asked, answers
from cefito.inference.plan_formats import PlanRow
from cefito.inference.query import Precision, features_of, query_from_features, query_from_files
from cefito.inference.question import Question, planning
from cefito.planners.base import Queries
from cefito.planners.base_planner import check_partial
from cefito.runs.run import Run
from cefito.settings import Record

logger = logging.getLogger(__name__)

PIECE = 64
"""Number of rows that are planned together: always the same rows, for their last bits' sake."""
_ENDS = ("initial", "goal")


class QuerySettings(Question):
    """What is asked of all queries of a source, as far as they do not say it themselves."""

    seconds: int | None = None  # see `cefito.inference.query.query_from_features`
    precision: Precision | None = None


class BadRow(Record):
    """A query that could not be planned, and the reason in one line."""

    query: str
    line: int
    reason: str


def plan_rows(
    run: Run, rows: Sequence[Row], folder: Path, settings: QuerySettings
) -> tuple[list[PlanRow], list[BadRow]]:
    """Plan the queries of a piece of parsed rows; a bad row does not affect the others.

    Args:
        run: Opened run.
        rows: Parsed rows.
        folder: Folder that files named in rows are relative to.
        settings: Settings of all queries.
    """
    asked = [_question(run, row, folder, settings) for row in rows]
    answered = iter(_answered([question for question in asked if isinstance(question, Asked)]))
    plans: list[PlanRow] = []
    bad: list[BadRow] = []
    for row, question in zip(rows, asked, strict=True):
        if isinstance(question, Asked):
            answer = next(answered)
            if isinstance(answer, Answer) and answer.plans:
                plans += PlanRow.of(answer, row.id, row.number)
                continue
            question = f"{row.place}: {answer if isinstance(answer, str) else 'no plan was found.'}"
        bad.append(BadRow(query=row.id, line=row.number, reason=question))
    return plans, bad


def _question(run: Run, row: Row, folder: Path, settings: QuerySettings) -> Asked | str:
    """Return the question of a parsed row, or why it has none."""
    try:
        return _asked(run, row, folder, settings)
    except Exception as problem:
        return _reason(problem, row.place)


def _answered(asked: Sequence[Asked]) -> list[Answer | str]:
    """Plan questions in groups of one kind; return the answer or the error of each."""
    groups: dict[object, list[int]] = {}
    for number, question in enumerate(asked):
        groups.setdefault(question.kind, []).append(number)
    answered: dict[int, Answer | str] = {}
    for numbers in groups.values():
        answered |= zip(numbers, _together([asked[number] for number in numbers]), strict=True)
    return [answered[number] for number in range(len(asked))]


def _together(asked: Sequence[Asked]) -> list[Answer | str]:
    """Plan questions of one kind together, or each alone if that fails."""
    try:
        return [*answers(asked)]
    except Exception as problem:  # of one query: the others must not suffer
        if len(asked) == 1:
            return [_reason(problem)]
        logger.debug("%d queries are planned one by one", len(asked), exc_info=True)
        return [_together([question])[0] for question in asked]


def _reason(problem: Exception, place: str = "") -> str:
    """Return an error in one line; log it and mark it as a defect unless a user can act on it."""
    reason = " ".join(str(problem).split())
    if not isinstance(problem, CefitoError):
        logger.error("%s: a defect of cefito", place or "a query", exc_info=problem)
        reason = f"{type(problem).__name__}: {reason}. This is a defect of the program."
    return f"{place}: {reason.removeprefix(f'{place}: ')}" if place else reason


def _asked(run: Run, row: Row, folder: Path, settings: QuerySettings) -> Asked:
    """Return the question of a parsed row; files are found relative to `folder`.

    A row has `features`, `start` and `end` (see `query_from_features`), or `initial` and `goal`:
    files (see `query_from_files`) or lists of numbers. docs/plan-batch.md lists all columns.
    """
    if row.problem:
        raise DataError(row.problem)
    columns, lists = _validated(row)
    question, run = settings.with_facts(columns), planning(run, columns.steps)
    if lists:
        query = _query_from_lists(lists)
    else:
        query = _query_from_files(run, columns, folder, settings, whole=row.whole)
    if not query.whole:
        check_partial(run.planner, "queries")
    return Asked.of(question, run, query, any_task=True)  # so that a table serves all methods


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
    sources_named = {name for name, cell in columns if cell is not None} & sources | set(lists)
    if "features" in sources_named:
        valid = not sources_named & set(_ENDS) and (row.whole or len(sources_named) > 1)
    else:
        said = bool(sources_named) or columns.task is not None or columns.done is not None
        valid = sources_named <= set(_ENDS) and len(lists) in (0, len(sources_named)) and said
    if not valid:
        names = ", ".join(sorted(sources_named)) or "nothing"
        raise DataError(f"is not a query (found {names}). {EXPECTED}")
    return columns, lists


def _constraints(constraints: Any) -> Any:
    """Return the constraints of a row: an object, or its JSON as text."""
    if isinstance(constraints, str):
        expected = 'Expected an object, as in {"forbidden": ["add ham"]}.'
        with explained("constraints", "not valid JSON", expected, *NOT_JSON):
            constraints = json.loads(constraints)
    if isinstance(constraints, Mapping):  # Parquet has a null for each field that is not given
        return {name: cell for name, cell in constraints.items() if cell is not None}
    return constraints


def _done(done: Any) -> Any:
    """Return the actions done before: a list, its JSON as text, or text with semicolons.

    An empty list or text says that nothing was done yet.
    """
    if not isinstance(done, str):
        return tuple(done) if isinstance(done, list) else done
    if not done.lstrip().startswith("["):
        return tuple(name.strip() for name in done.split(";")) if done.strip() else ()
    with explained("done", "not valid JSON", 'Expected a list, as in ["boil"].', *NOT_JSON):
        return _done(json.loads(done))


def _query_from_lists(lists: Mapping[str, Any]) -> Queries:
    """Return the query of one or two lists of numbers [E]."""
    arrays = {}
    for name, vector in lists.items():
        kinds = {type(number) for number in vector} if isinstance(vector, list) else {float}
        array = np.asarray(vector if kinds <= {int, float} else [], dtype=np.float64)
        if not array.size or array.ndim != 1 or not np.isfinite(array).all():
            raise DataError(f"'{name}' is not a list of finite numbers. Give one observation [E].")
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused
            arrays[name] = array.astype(np.float32)
    initial, goal = (arrays.get(name) for name in _ENDS)
    return Queries.partial(size=len(next(iter(arrays.values()))), initial=initial, goal=goal)


def _query_from_files(
    run: Run, columns: Columns, folder: Path, settings: QuerySettings, *, whole: bool
) -> Queries:
    """Return the query of the files that a row names."""
    if columns.features is None:
        initial, goal = (
            None if path is None else folder / path for path in (columns.initial, columns.goal)
        )
        return query_from_files(initial, goal, run)
    features = features_of(run, folder / columns.features)
    start, end = (0.0, float(features.rows)) if whole else (columns.start, columns.end)
    how = settings.model_dump(include={"seconds", "precision"})
    return query_from_features(run, features, start=start, end=end, **how)
