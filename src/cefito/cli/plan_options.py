"""Options of commands that plan: numbers of steps, task, constraints and search."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_origin

from cyclopts import Parameter

from cefito.cli.options import (
    CONSTRAINTS,
    OUTPUT,
    PLANS,
    SEARCH,
    Flag,
    Several,
    options_class,
)
from cefito.search.constraints import Constraints, declared
from cefito.search.settings import SearchConfig

if TYPE_CHECKING:
    import torch

    from cefito.batch.query_rows import QuerySettings
    from cefito.runs.run import Run

__all__ = [
    "AS_TRAINED",
    "DEFAULTS",
    "ConstraintOptions",
    "PlanOptions",
    "SearchOptions",
    "option_of",
]

_NAMES = {"method": "--search", "budget_gflop": "--budget"}
"""Options with another name than their setting."""

_OF_TRAINING = ("actions", "fitting_windows")
"""Settings that are decided when a run is trained."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search; by default as the run was trained. Fields: the settings of `SearchConfig`."""

    def changes(self) -> dict[str, Any]:
        """Return the given settings."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def applied(self, run: Run) -> Run:
        """Return the run with the given settings."""
        changes = self.changes()
        return run.with_search(**changes) if changes else run


def option_of(setting: str) -> str:
    """Return the option of a setting of the search."""
    return _NAMES.get(setting, "--" + setting.replace("_", "-"))


def _descriptions() -> dict[str, str]:
    """Return the description of each setting from the docstrings."""
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in SearchConfig.__mro__]
    attributes = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _search_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    descriptions = _descriptions()
    for name, setting in SearchConfig.model_fields.items():
        parameter = Parameter(name=option_of(name), help=descriptions.get(name, ""))
        if name not in _OF_TRAINING:
            yield name, Annotated[Optional[setting.annotation], parameter], None  # noqa: UP045


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    SearchOptions = options_class(SearchOptions, _search_options(), SEARCH)

AS_TRAINED = SearchOptions()
"""Nothing changed."""


@dataclass(frozen=True)
class ConstraintOptions:
    """Constraints on every plan, as text. Fields: the constraints of `Constraints`."""


def _constraint_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    for name, (kind, how) in declared().items():
        parameter = Parameter(name="--" + how.option.replace("_", "-"), negative="", help=how.help)
        text = Several if get_origin(kind) is tuple else kind
        yield name, Annotated[text, parameter], getattr(Constraints, name)


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    ConstraintOptions = options_class(ConstraintOptions, _constraint_options(), CONSTRAINTS)

UNCONSTRAINED = ConstraintOptions()


@Parameter(name="*", group=PLANS)
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How to plan.

    Attributes:
        task: Name or id of the task, instead of the predicted one; in a table, of the queries that
            name none.
        top_k: Number of plans a query.
        steps: Numbers of steps of the plans, for a run of several lengths: one (3) or a range
            (2-4); all by default. In a table, of the queries that name none.
        done: Name or id of an action done before, for a run of several lengths; may be repeated,
            oldest first; "" if nothing was done yet, nothing if it is not known. In a table, of
            the queries that do not say it.
        elapsed: Seconds between both observations, for a run of several lengths. In a table, of the
            queries that name none.
        min_probability: From 0 to 1: an answer with a less probable best plan is marked as not
            sure.
        coverage: Such as 0.9: also show the smallest sets of plans, and of first steps, that hold
            the annotated one for this share of new videos; after cefito calibrate.
        horizon: Number of actions, if the folder holds runs of several.
        device: auto, cpu or cuda.
        json: Print JSON.
    """

    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    top_k: int = 5
    steps: str | None = None
    done: Several = ()
    elapsed: float | None = None
    constraints: ConstraintOptions = UNCONSTRAINED
    min_probability: float | None = None
    coverage: float | None = None
    horizon: int | None = None
    device: Annotated[str, Parameter(group=SEARCH)] = "auto"
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False

    def open(self, folder: Path, search: SearchOptions) -> tuple[Run, torch.device]:
        """Open a run with the search of the options, and return it with its device."""
        from cefito.inference.steps import open_planning
        from cefito.runtime import pick_device

        device = pick_device(self.device)
        run = open_planning(folder, horizon=self.horizon, steps=self.steps, device=device)
        return search.applied(run), device

    def settings(self, run: Run, **more: Any) -> QuerySettings:
        """Return the settings of all queries; refuse tasks and actions that the run lacks."""
        from cefito.batch.query_rows import QuerySettings
        from cefito.data.vocabulary import find_done, find_task
        from cefito.inference.constraints import parse_constraints
        from cefito.planners.checks import check_partial
        from cefito.settings import validated

        task = None if self.task is None else find_task(run.taxonomy, self.task)
        constraints = parse_constraints(run.taxonomy, vars(self.constraints), task=task)
        constraints.resolved(run.taxonomy, task=task)
        names = () if self.done == ("",) else self.done
        done = [find_done(run.taxonomy, name, task=task) for name in names]
        if self.done:
            check_partial(run.planner, "done")
        values = {
            "top_k": self.top_k,
            "task": task,
            "done": done if self.done else None,
            "elapsed": self.elapsed,
            "constraints": constraints,
            "min_probability": self.min_probability,
            "coverage": self.coverage,
            **more,
        }
        return validated(QuerySettings, values, place="query")


DEFAULTS = PlanOptions()
