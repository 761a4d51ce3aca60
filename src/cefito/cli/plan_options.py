"""Options that `plan` and `plan-batch` share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from cyclopts import Parameter

from cefito.cli.options import Flag, Several, options_class
from cefito.search.constraints import Constraints, declared

if TYPE_CHECKING:
    import torch

    from cefito.batch.query_rows import QuerySettings
    from cefito.cli.search_options import SearchOptions
    from cefito.runs.run import Run

__all__ = ["DEFAULTS", "ConstraintOptions", "PlanOptions"]


@dataclass(frozen=True)
class ConstraintOptions:
    """Constraints on every plan, as text. Fields: the constraints of `Constraints`."""


def _options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    for name, (kind, how) in declared().items():
        parameter = Parameter(name="--" + how.option.replace("_", "-"), negative="", help=how.help)
        text = Several if get_origin(kind) is tuple else kind
        yield name, Annotated[text, parameter], getattr(Constraints, name)


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    ConstraintOptions = options_class(ConstraintOptions, _options())

UNCONSTRAINED = ConstraintOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How to plan.

    Attributes:
        task: Name or id of the task, instead of the predicted one; in a table, of the queries that
            name none.
        top_k: Number of plans a query.
        min_probability: From 0 to 1: an answer with a less probable best plan is marked as not
            sure.
        horizon: Number of actions, if the folder holds runs of several.
        device: auto, cpu or cuda.
        json: Print JSON.
    """

    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    top_k: int = 5
    constraints: ConstraintOptions = UNCONSTRAINED
    min_probability: float | None = None
    horizon: int | None = None
    device: str = "auto"
    json: Flag = False

    def open(self, folder: Path, search: SearchOptions) -> tuple[Run, torch.device]:
        """Open a run with the search of the options, and return it with its device."""
        from cefito.runs.run import open_run
        from cefito.runtime import pick_device

        device = pick_device(self.device)
        return search.applied(open_run(folder, horizon=self.horizon, device=device)), device

    def settings(self, run: Run, **more: Any) -> QuerySettings:
        """Return the settings of all queries; refuse tasks and actions that the run lacks."""
        from cefito.batch.query_rows import QuerySettings
        from cefito.data.names import find_task
        from cefito.inference.named_constraints import parse_constraints
        from cefito.settings import validated

        task = None if self.task is None else find_task(run.taxonomy, self.task)
        constraints = parse_constraints(run.taxonomy, vars(self.constraints), task=task)
        constraints.resolved(run.taxonomy, task=task)
        values = {
            "top_k": self.top_k,
            "task": task,
            "constraints": constraints,
            "min_probability": self.min_probability,
            **more,
        }
        return validated(QuerySettings, values, place="query")


DEFAULTS = PlanOptions()
