"""A query as it stands in a list: what it says is read, and the observations that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cefito.batch.rows import EXPECTED, Row, Source
from cefito.batch.sources import open_table
from cefito.data.names import find_task
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.inference.named_constraints import Name, NamedConstraints
from cefito.inference.observations import Precision, check_width, query_from_features
from cefito.inference.query import query_from_files
from cefito.planners.base import Queries
from cefito.runs.run import Run
from cefito.search.constraints import Constraints
from cefito.settings import Settings

__all__ = ["PLAIN", "Asked", "QueryRow", "asked_query", "read_queries"]

_PAIR = ("initial", "goal")


class Asked(Settings):
    """What is asked of all queries of a list.

    Attributes:
        top_k: Plans a query.
        task: Id of the task of queries that name none; None to have it predicted.
        constraints: What plans must satisfy, besides what a query asks itself.
        min_probability: As in `cefito.inference.answer.answer`.
        seconds: As in `cefito.inference.observations.query_from_features`.
        precision: Likewise.
    """

    top_k: int = 5
    task: int | None = None
    constraints: NamedConstraints = NamedConstraints()
    min_probability: float | None = None
    seconds: int | None = None
    precision: Precision | None = None


PLAIN = Asked()
"""Five plans a query, whatever they are."""


class _Line(Settings):
    """What a row says besides observations that stand in it; files are named from a folder."""

    id: str | None = None
    features: Path | None = None
    start: float | None = None
    end: float | None = None
    initial: Path | None = None
    goal: Path | None = None
    task: Name | None = None
    constraints: NamedConstraints | None = None


@dataclass(frozen=True)
class QueryRow:
    """A query of a list.

    Attributes:
        id: Its name: as given, otherwise the number of its line.
        query: The query.
        task: Id of its task, where it is given.
        constraints: What its plans must satisfy.
        files: Files that it was made of.
    """

    id: str
    query: Queries
    task: int | None = None
    constraints: Constraints = Constraints()
    files: tuple[Path, ...] = ()


def read_queries(run: Run, path: Path | str, asked: Asked = PLAIN) -> list[QueryRow]:
    """Read a short list of queries whole, and the observations of all of them.

    Args:
        run: The run that is to plan.
        path: A table, as `cefito.batch.sources.open_table` takes it. Each line has `features`,
            `start` and `end`, as `query_from_features` takes them, or `initial` and `goal`, files
            as `query_from_files` takes them or lists of numbers; and, if you like, `id`, `task`, by
            name or id, and `constraints`, an object with the fields of `NamedConstraints`, or one
            as text. Files are found from the folder of the list.
        asked: What is asked of all of them.

    Raises:
        ConfigError: Another ending than those of tables, or times that features do not have.
        DataError: The list or a file cannot be read, a line is no query, an id occurs twice, or
            there is no line at all; the message names the line.
        RunError: Features or observations that do not fit the run.
    """
    source = open_table(Path(path))
    found: dict[str, QueryRow] = {}
    for row in _all(source):
        query = asked_query(run, row, source.folder, asked)
        if query.id in found:
            raise DataError(f"{row.place}: id '{query.id}' occurs twice. Give each query its own.")
        found[query.id] = query
    if not found:
        raise DataError(f"{path}: holds no query. {EXPECTED}")
    return list(found.values())


def _all(source: Source) -> Iterator[Row]:
    return source.rows(0, len(source))


def asked_query(run: Run, row: Row, folder: Path, asked: Asked = PLAIN) -> QueryRow:
    """The query that a row asks for.

    Args:
        run: The run that is to plan.
        row: The row.
        folder: From where files are found.
        asked: What is asked of all queries.

    Raises:
        CefitoError: It is none, or one that the run cannot be asked; the message names the place.
    """
    if row.problem:
        raise DataError(f"{row.place}: {row.problem}", setting="queries")
    line, observations = _parsed(row)
    files: tuple[Path, ...] = ()
    try:
        task = asked.task if line.task is None else find_task(run.taxonomy, line.task)
        wanted = asked.constraints
        if line.constraints is not None:
            wanted = wanted.with_more(line.constraints)
        constraints = wanted.resolved(run.taxonomy, task=task)
        if not run.planner.abilities.true_task:
            task = None  # lists are planned by several methods, and not all make use of it
        if observations is not None:
            query = Queries(*observations)
        else:
            query, files = _query(run, line, folder, asked)
        _check_width(run, query)
    except CefitoError as problem:
        _raise(problem, row.place)
    return QueryRow(row.name if line.id is None else line.id, query, task, constraints, files)


def _parsed(row: Row) -> tuple[_Line, tuple[NDArray[np.float32], NDArray[np.float32]] | None]:
    """What a row says, and the two observations [1, E] that stand in it, if they do.

    Raises:
        DataError: It is no query.
    """
    value, inside = row.value, {}
    if isinstance(value, Mapping):
        value = {name: part for name, part in value.items() if part is not None}
        inside = {name: value.pop(name) for name in _PAIR if _numbers(value.get(name))}
        if type(value.get("id")) is int:
            value["id"] = str(value["id"])
        value["constraints"] = _constraints(value.get("constraints"), row.place)
    try:
        line = _Line.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise DataError(f"{row.place}: is no query ({reason}). {EXPECTED}") from problem
    given = {name for name, part in line if part is not None} - {"id", "task", "constraints"}
    if set(inside) == set(_PAIR) and not given:
        initial, goal = (_observation(inside[name], name, row.place) for name in _PAIR)
        if initial.shape != goal.shape:
            raise DataError(
                f"{row.place}: 'initial' has {initial.shape[1]} numbers and 'goal' "
                f"{goal.shape[1]}; expected equally many."
            )
        return line, (initial, goal)
    if inside or given not in ({"features", "start", "end"}, set(_PAIR)):
        found = ", ".join(sorted(given | set(inside))) or "nothing"
        raise DataError(f"{row.place}: is no query (found {found}). {EXPECTED}")
    return line, None


def _numbers(given: Any) -> bool:
    return isinstance(given, list | np.ndarray)


def _observation(given: Any, name: str, place: str) -> NDArray[np.float32]:
    """An observation that stands in a row, [1, E]."""
    kinds = {type(number) for number in given} if isinstance(given, list) else {float}
    array = np.asarray(given if kinds <= {int, float} else [], dtype=np.float64)
    if not array.size or array.ndim != 1:
        raise DataError(f"{place}: '{name}' is no list of numbers. Give one observation [E].")
    if not np.isfinite(array).all():
        first = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(
            f"{place}: '{name}' holds {array[first]} (number {first}, counted from 0). Extract its "
            "features again or leave the query out."
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
        return array.astype(np.float32)[None]


def _constraints(given: Any, place: str) -> Any:
    """Constraints as they stand in a row: an object, or one as text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as problem:
            raise DataError(
                f"{place}: constraints: not valid JSON ({problem}). Expected an object, as in "
                '{"forbidden": ["add ham"]}.'
            ) from problem
    if isinstance(given, Mapping):
        return {name: part for name, part in given.items() if part is not None}
    return given


def _query(run: Run, line: _Line, folder: Path, asked: Asked) -> tuple[Queries, tuple[Path, ...]]:
    """The query of files, and these."""
    if line.initial is not None and line.goal is not None:
        initial, goal = folder / line.initial, folder / line.goal
        return query_from_files(initial, goal, run), (initial, goal)
    assert line.features is not None
    assert line.start is not None
    assert line.end is not None
    features = folder / line.features
    query = query_from_features(
        run,
        features,
        start=line.start,
        end=line.end,
        seconds=asked.seconds,
        precision=asked.precision,
    )
    return query, (features,)


def _check_width(run: Run, query: Queries) -> None:
    """Refuse observations of another width than the run's, before they stand beside others."""
    width, expected = query.initial.shape[1], run.planner.observation_dim
    check_width(run, width, "observations have")
    if width != expected:
        raise RunError(f"observations have {width} features; this run was trained on {expected}.")


def _raise(problem: CefitoError, place: str) -> NoReturn:
    """The same error, with the place in front."""
    kinds = (ConfigError, DataError, RunError)
    kind = next((kind for kind in kinds if isinstance(problem, kind)), CefitoError)
    setting = problem.setting if problem.setting in ("seconds", "precision") else "queries"
    raise kind(f"{place}: {problem}", setting=setting) from problem
