"""`cefito planners`: every method with its paper, needs, abilities, size, and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, print_json, table
from cefito.cli.options import Flag

if TYPE_CHECKING:
    from cefito.planners.methods import PlannerVariant
    from cefito.study.method_catalogue import ListedMethod

__all__ = ["planners"]


def planners(*, json: Flag = False) -> None:
    """List every method: its paper, what it needs and can do, parameters at the published size.

    A second table lists the rows of cefito compare by method. Parameters are counted with preset
    paper on CrossTask (133 actions, 18 tasks) at T = 3.

    Args:
        json: Print JSON instead of tables.
    """
    from cefito.study.method_catalogue import listed_methods

    with log_warnings():
        methods = listed_methods()
    if json:
        print_json([method.to_dict() for method in methods])
        return
    table(
        "methods, as cefito train --method takes them",
        ("method", "title", "can", "needs", "parameters", "paper"),
        [_cells(listed) for listed in methods],
    )
    table(
        "rows, as cefito compare --planners takes them; all: those without a kind",
        ("planner", "title", "method", "kind"),
        [
            (row.name, row.title, row.method, _kind(row))
            for listed in methods
            for row in listed.method.variants
        ],
    )


def _cells(listed: ListedMethod) -> tuple[str, ...]:
    method, paper, size = listed.method, listed.method.paper, sum(listed.parameters.values())
    needs = [*method.needs, *(f"{use} (if given)" for use in method.uses)]
    place = f" ({paper.place})" if paper is not None and paper.place else ""
    source = ["" if paper is None else paper.title + place]
    source += [f"package {listed.package}"] if listed.package else []
    return (
        method.name,
        method.title or method.name,
        ", ".join(listed.can),
        ", ".join(needs) or "–",
        f"{size / 1e6:.2f} M" if size else "not published",
        "; ".join(filter(None, source)) or "–",
    )


def _kind(row: PlannerVariant) -> str:
    """Return why "all" leaves a row out; empty if it does not."""
    from cefito.planners.methods import SERVER, find_method

    if row.oracle:
        return "oracle"
    if row.ablation:
        return "ablation"
    return "asks llm.model" if SERVER in find_method(row.method).needs else ""
