"""`cefito plan --queries`: the best plans of every query of a list."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cefito.cli.console import passing_progress, stoppable, table, talk
from cefito.cli.observe import ObserveOptions
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.data.taxonomy import Taxonomy
    from cefito.inference.answer import Answer
    from cefito.inference.named_constraints import NamedConstraints
    from cefito.runs.run import Run

__all__ = ["plan_many"]


def plan_many(
    run: Run,
    path: Path,
    observe: ObserveOptions,
    *,
    alone: bool,
    json: bool,
    ids: bool,
    task: int | None,
    constraints: NamedConstraints,
    **asked: Any,
) -> int:
    """Plan every query of a list, and print the answers.

    Args:
        run: The run.
        path: The list, as `cefito.batch.query_rows.read_queries` takes it.
        observe: Of these only `seconds` and `precision` go with a list.
        alone: Whether no option of a single query was given.
        json: Print the answers as JSON, one a line, instead of a table of the best plans.
        ids: Whether to show the ids of actions.
        task: Id of the task of queries that name none.
        constraints: Of all queries, besides their own.
        asked: What else is asked of each, as `cefito.inference.answer.answer` takes it.

    Returns:
        The exit code.
    """
    from cefito.batch.query_rows import Asked, read_queries
    from cefito.inference.answer import answer
    from cefito.planners.base import check_task_given

    given = {name for name, value in vars(observe).items() if value is not None}
    if not alone or given - {"seconds", "precision"}:
        raise ConfigError(
            "--queries takes the place of --video, --features, --initial and pictures. Leave these "
            "out."
        )
    if task is not None:
        check_task_given(run.planner)
    queries = read_queries(
        run,
        path,
        Asked(
            task=task,
            constraints=constraints,
            seconds=observe.seconds,
            precision=observe.precision,
        ),
    )
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
                constraints=entry.constraints,
                stop=stop,
                **asked,
            )
            if made.plans:
                found.append((entry.id, made))
            if json and made.plans:
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
    """The best plan of each query."""
    from cefito.data.names import sequence

    columns: dict[str, list[str]] = {
        "query": [name for name, _ in found],
        "task": [made.task.name or "" for _, made in found],
        "score (lower is better)": [f"{made.plans[0].score:.4f}" for _, made in found],
    }
    likely = [made.plans[0].probability for _, made in found]
    if any(share is not None for share in likely):
        columns["probability"] = [
            "" if share is None else f"{100 * share:.1f} %" for share in likely
        ]
    columns["best plan"] = [sequence(taxonomy, made.plans[0].actions, ids=ids) for _, made in found]
    table("", tuple(columns), list(zip(*columns.values(), strict=True)))
