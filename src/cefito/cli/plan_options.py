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
from cefito.inference.constraints import ActionNames, Name
from cefito.inference.question import AnyQuestion, Question
from cefito.planners.shared.settings import PlanningConfig
from cefito.search.constraints import Constraints, declared

if TYPE_CHECKING:
    import torch
    from pydantic.fields import FieldInfo

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
    """How to search; by default as the run was trained. Fields: those of `PlanningConfig`."""

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
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in PlanningConfig.__mro__]
    attributes = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _search_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    descriptions = _descriptions()
    for name, setting in PlanningConfig.model_fields.items():
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


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How to plan. Fields besides: the facts of a `Question`.

    Attributes:
        horizon: Number of actions, if the folder holds runs of several.
        device: auto, cpu or cuda.
        json: Print JSON.
    """

    constraints: ConstraintOptions = UNCONSTRAINED
    horizon: int | None = None
    device: Annotated[str, Parameter(group=SEARCH)] = "auto"
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False

    def open(self, folder: Path, search: SearchOptions) -> tuple[Run, torch.device]:
        """Open a run with the search of the options, and return it with its device."""
        from cefito.inference.steps import open_planning
        from cefito.runtime import pick_device

        device, steps = pick_device(self.device), vars(self)["steps"]
        run = open_planning(folder, horizon=self.horizon, steps=steps, device=device)
        return search.applied(run), device

    def question(self, run: Run, kind: type[AnyQuestion], **more: Any) -> AnyQuestion:
        """Return what is asked of a run, with names as they were given."""
        from cefito.data.vocabulary import find_task
        from cefito.inference.constraints import parse_constraints
        from cefito.settings import validated

        given: dict[str, Any] = {name: vars(self)[name] for name in _facts()}
        for name, value in given.items():
            if isinstance(value, tuple):  # "" for an empty list, nothing for None
                given[name] = (() if value == ("",) else value) if value else None
        task = None if given["task"] is None else find_task(run.taxonomy, given["task"])
        named = parse_constraints(run.taxonomy, vars(self.constraints), task=task)
        return validated(kind, {**given, "constraints": named, **more}, place="question")


_TEXT = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
_FROM_TEXT: dict[Any, Any] = {Name | None: _TEXT, ActionNames | None: Several}


def _facts() -> dict[str, FieldInfo]:
    return {name: one for name, one in Question.model_fields.items() if name != "constraints"}


def _question_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    for name, fact in _facts().items():
        kind = _FROM_TEXT.get(fact.annotation, fact.annotation)
        several = kind is Several
        text = f"{fact.description}" + ' May be repeated; "" for an empty list.' * several
        default = () if several else fact.default
        yield name, Annotated[kind, Parameter(help=text)], default


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    PlanOptions = options_class(PlanOptions, _question_options(), PLANS)

DEFAULTS = PlanOptions()
