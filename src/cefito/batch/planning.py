"""Plans of the queries of a piece: together if possible, each alone if one of them fails."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cefito.batch.query_rows import QueryRow, QuerySettings, query_from_row
from cefito.batch.sources import Row
from cefito.errors import CefitoError
from cefito.inference.answer import Answer, answers
from cefito.inference.plan_formats import PlanRow
from cefito.planners.base import Queries
from cefito.runs.run import Run
from cefito.settings import Record

logger = logging.getLogger(__name__)

PIECE = 64
"""Number of rows that are planned together: always the same rows, for their last bits' sake."""


class BadRow(Record):
    """A query that could not be planned, and the reason in one line."""

    query: str
    line: int
    reason: str


@dataclass
class PlannedRows:
    """Plans of some rows, rows without a plan, and what was read of files."""

    plans: list[PlanRow] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    observed: list[str] = field(default_factory=list)  # as by `read_rows`


def read_rows(
    run: Run, rows: Sequence[Row], folder: Path, settings: QuerySettings
) -> tuple[list[QueryRow | str], list[str]]:
    """Return the query of each parsed row or why it has none, and a digest of what files gave.

    The digests are SHA-256 of the observations of each row that names files; empty if it has none.
    """
    queries: list[QueryRow | str] = []
    observed: list[str] = []
    for row in rows:
        digest = ""
        try:
            query = query_from_row(run, row, folder, settings)
        except CefitoError as problem:
            queries.append(_one_line(problem))
        except Exception as problem:
            logger.exception("%s: a defect of cefito", row.place)
            queries.append(f"{row.place}: {_reason(problem)}")
        else:
            queries.append(query)
            digest = _digest(query.asked.query)
        observed += [digest] * row.names_files
    return queries, observed


def _digest(query: Queries) -> str:
    """Return the SHA-256 of the observations of a query, and of which of them it has."""
    parts = query.initial.tobytes() + query.goal.tobytes()
    seen = b"" if query.seen is None else query.seen.tobytes()
    return hashlib.sha256(parts + seen).hexdigest()


def plan_rows(run: Run, rows: Sequence[Row], folder: Path, settings: QuerySettings) -> PlannedRows:
    """Plan the queries of a piece; a bad row does not affect the others."""
    rows = [row.parsed() for row in rows]
    parsed, observed = read_rows(run, rows, folder, settings)
    found = PlannedRows(observed=observed)
    found.files += [file for one in parsed if isinstance(one, QueryRow) for file in one.files]
    answered = iter(_plan([one for one in parsed if isinstance(one, QueryRow)]))
    for row, one in zip(rows, parsed, strict=True):
        if isinstance(one, QueryRow):
            answer = next(answered)
            if isinstance(answer, Answer) and answer.plans:
                found.plans += PlanRow.of(answer, row.id, row.number)
                continue
            one = f"{row.place}: {answer if isinstance(answer, str) else 'no plan was found.'}"
        found.bad.append(BadRow(query=row.id, line=row.number, reason=one))
    return found


def _plan(queries: Sequence[QueryRow]) -> list[Answer | str]:
    """Return the answer to each query or the reason; queries of one kind are planned together."""
    groups: dict[object, list[int]] = {}
    for number, query in enumerate(queries):
        groups.setdefault(query.asked.kind, []).append(number)
    found: dict[int, Answer | str] = {}
    for numbers in groups.values():
        try:
            together = answers([queries[number].asked for number in numbers])
            found |= dict(zip(numbers, together, strict=True))
        except Exception:  # of one query: the others must not suffer
            logger.debug("%d queries are planned one by one", len(numbers), exc_info=True)
            for number in numbers:
                try:
                    (found[number],) = answers([queries[number].asked])
                except CefitoError as problem:
                    found[number] = _reason(problem)
                except Exception as problem:
                    logger.exception("query '%s': a defect of cefito", queries[number].id)
                    found[number] = _reason(problem)
    return [found[number] for number in range(len(queries))]


def _reason(problem: Exception) -> str:
    """Return an error in one line, marked as a defect unless a user can act on it."""
    if isinstance(problem, CefitoError):
        return _one_line(problem)
    return f"{type(problem).__name__}: {_one_line(problem)}. This is a defect of the program."


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())
