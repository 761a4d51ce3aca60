"""Plans of the queries of a piece: together where they can be, alone where one of them fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cefito.batch.plan_rows import BadRow, PlanRow
from cefito.batch.query_rows import Asked, QueryRow, asked_query
from cefito.batch.rows import Row
from cefito.errors import CefitoError, ConfigError
from cefito.inference.answer import Answer, answer_of, asked_of, in_names
from cefito.planners.base import Queries
from cefito.runs.run import Run

__all__ = ["Planned", "plan_rows"]


@dataclass(frozen=True)
class Planned:
    """What became of some rows.

    Attributes:
        plans: The plans of those that are queries, in their order.
        bad: Those that could not be planned.
        files: Files that observations were read from.
    """

    plans: list[PlanRow]
    bad: list[BadRow]
    files: list[Path]


def plan_rows(run: Run, rows: Iterable[Row], folder: Path, asked: Asked) -> Planned:
    """Plan the queries of some rows; a row that is none is told, and holds up no other.

    Args:
        run: The run.
        rows: The rows.
        folder: From where files that they name are found.
        asked: What is asked of all.
    """
    made: list[tuple[Row, QueryRow | str]] = []  # or why there is no query
    files: list[Path] = []
    for row in rows:
        try:
            query = asked_query(run, row, folder, asked)
        except CefitoError as problem:
            made.append((row, _line(problem)))
        except Exception as problem:
            made.append((row, f"{row.place}: {_defect(problem)}"))
        else:
            made.append((row, query))
            files += query.files
    queries = [query for _, query in made if isinstance(query, QueryRow)]
    found = dict(zip(map(id, queries), _planned(run, queries, asked), strict=True))
    plans: list[PlanRow] = []
    bad: list[BadRow] = []
    for row, one in made:
        if isinstance(one, str):
            reason = one
        else:
            answer = found[id(one)]
            if isinstance(answer, Answer) and answer.plans:
                plans += PlanRow.of(answer, row.id, row.number, run.taxonomy)
                continue
            why = answer if isinstance(answer, str) else "no plan was found."
            reason = f"{row.place}: {why}"
        bad.append(BadRow(query=row.id, line=row.number, reason=reason))
    return Planned(plans, bad, files)


def _planned(run: Run, queries: Sequence[QueryRow], asked: Asked) -> list[Answer | str]:
    """The answer to each query, or why there is none.

    Those that ask for the same are planned together.
    """
    alike: dict[object, list[int]] = {}
    for number, query in enumerate(queries):
        alike.setdefault((query.constraints, query.task is None), []).append(number)
    found: dict[int, Answer | str] = {}
    for numbers in alike.values():
        some = [queries[number] for number in numbers]
        try:
            together = _answers(run, some, asked)
        except Exception:
            found |= {number: _alone(run, queries[number], asked) for number in numbers}
        else:
            found |= dict(zip(numbers, together, strict=True))
    return [found[number] for number in range(len(queries))]


def _alone(run: Run, query: QueryRow, asked: Asked) -> Answer | str:
    """The answer to a query that stood beside one which could not be planned, if not itself."""
    try:
        (answer,) = _answers(run, [query], asked)
    except CefitoError as problem:
        return _line(problem)
    except Exception as problem:
        return _defect(problem)
    return answer


def _answers(run: Run, queries: Sequence[QueryRow], asked: Asked) -> list[Answer]:
    tasks = [query.task for query in queries if query.task is not None]
    together, constraints = asked_of(
        run,
        Queries(
            initial=np.concatenate([query.query.initial for query in queries]),
            goal=np.concatenate([query.query.goal for query in queries]),
            tasks=np.array(tasks, dtype=np.int64) if tasks else None,
        ),
        constraints=queries[0].constraints,
    )
    try:
        found = run.planner.plan(together, asked.top_k, constraints=constraints)
    except ConfigError as problem:
        raise in_names(problem, run.taxonomy) from problem
    return [
        answer_of(run, together.subset([row]), plans, min_probability=asked.min_probability)
        for row, plans in enumerate(found)
    ]


def _defect(problem: Exception) -> str:
    """What to say of an error that no user can act on; it must not hold up other queries."""
    return f"{type(problem).__name__}: {_line(problem)}. This is a defect of the program."


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())
