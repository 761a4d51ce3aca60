"""`cefito plan --queries`: the best plans of every query of a table."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import passing_progress, stoppable, table, talk

if TYPE_CHECKING:
    from cefito.batch.query_rows import QuerySettings
    from cefito.data.taxonomy import Taxonomy
    from cefito.inference.answer import Answer
    from cefito.runs.run import Run

__all__ = ["plan_many"]


def plan_many(run: Run, path: Path, settings: QuerySettings, *, json: bool, ids: bool) -> int:
    """Plan every query of a table, print the answers, and return the exit code."""
    from cefito.batch.query_rows import read_queries
    from cefito.inference.answer import answer
    from cefito.planners.base import check_task_given

    if settings.task is not None:  # a row's own task is ignored by planners that take none
        check_task_given(run.planner)
    queries = read_queries(run, path, settings)
    found: list[tuple[str, Answer]] = []
    with (
        stoppable("stopping with the plans so far; press Ctrl-C again to end at once") as stop,
        passing_progress("planning", total=len(queries)) as advance,
    ):
        for entry in queries:
            made = answer(
                run,
                entry.query,
                task=entry.task,
                top_k=settings.top_k,
                constraints=entry.constraints,
                min_probability=settings.min_probability,
                stop=stop,
            )
            if made.plans:
                found.append((entry.id, made))
                if json:
                    line = {"id": entry.id, **made.to_dict()}
                    sys.stdout.write(jsons.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            if stop():
                break
            advance()
    if not json:
        _show(found, run.taxonomy, ids=ids)
    if len(found) < len(queries):
        talk(f"interrupted: {len(found)} of {len(queries)} queries were planned")
        return 130
    exact = sum(made.exact for _, made in found)
    talk(f"{len(found)} queries, the plans of {exact} are exact")
    return 0


def _show(found: list[tuple[str, Answer]], taxonomy: Taxonomy, *, ids: bool) -> None:
    """Print the best plan of each query."""
    from cefito.data.names import sequence

    best = [made.plans[0] for _, made in found]
    columns = {
        "query": [name for name, _ in found],
        "task": [made.task.name or "" for _, made in found],
        "score (lower is better)": [f"{plan.score:.4f}" for plan in best],
    }
    if any(plan.probability is not None for plan in best):
        columns["probability"] = [
            "" if plan.probability is None else f"{100 * plan.probability:.1f} %" for plan in best
        ]
    columns["best plan"] = [sequence(taxonomy, plan.actions, ids=ids) for plan in best]
    table("", tuple(columns), list(zip(*columns.values(), strict=True)))
