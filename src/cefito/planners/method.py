"""Method: a planner with its settings, what is said of it, and its rows in tables.

Each method's folder declares its own in a module `method`; `registry` lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from cefito.errors import ConfigError
from cefito.planners.base import Planner
from cefito.search.settings import search_settings
from cefito.settings import Settings

__all__ = [
    "CLASSIFIER",
    "DESCRIPTIONS",
    "GRAPH",
    "ORACLES",
    "SERVER",
    "TEXT",
    "TRUE_TASK",
    "Method",
    "NoSettings",
    "Paper",
    "PlannerVariant",
    "ablation",
]

CLASSIFIER = "task classifier"
DESCRIPTIONS = "descriptions of states"
GRAPH = "graph of training windows"
SERVER = "language model server"
TEXT = "text vectors of actions"

ORACLES = {
    "true_task": "the task",
    "true_ends": "the true ends",
    "true_between": "the states between",
}
"""Truth that a variant may be given; each is also a field of `Abilities`."""
TRUE_TASK = "-true-task"
"""End of a variant's name if it is given the true task."""


class NoSettings(Settings):
    """Settings of methods that have none."""


@dataclass(frozen=True)
class Paper:
    """Publication of a method."""

    title: str
    venue: str = ""  # conference and year; empty if unknown
    arxiv: str = ""  # number on arXiv; empty if unknown

    @property
    def place(self) -> str:
        """Venue and number, as far as they are known."""
        return ", ".join(filter(None, (self.venue, self.arxiv and f"arXiv {self.arxiv}")))

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; null if unknown."""
        return {name: value or None for name, value in asdict(self).items()}


class PlannerVariant(Settings):
    """One row of a table: a method, how it is trained and how it plans."""

    name: str
    title: str
    own_name: bool = Field(default=False, exclude=True)  # the planner names itself
    method: str
    settings: Mapping[str, Any] = {}  # changes in training, dotted keys
    search: Mapping[str, Any] = {}  # changes of the search in planning
    exhaustive: bool = False  # so costly that long horizons are scored on a sample
    true_task: bool = False
    true_ends: bool = False
    true_between: bool = False
    ablation: bool = Field(default=False, exclude=True)  # "all" leaves it out

    @property
    def oracle(self) -> bool:
        """Whether it is given truth that no planner can know."""
        return any(getattr(self, name) for name in ORACLES)

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        for name in ("true_ends", "true_between"):
            if not values.get(name):
                values.pop(name, None)
        return values

    def apply(self, planner: Planner) -> Planner:
        """Return a planner that searches as the row says."""
        if not self.search:
            return planner
        trained = planner.describe().search
        if trained is None:
            raise ConfigError(f"'{self.name}': {planner.name} has no search to choose.")
        return planner.with_search(search_settings(trained, **self.search))

    def with_true_task(self) -> PlannerVariant:
        """Return the same variant with the true task given."""
        return self.model_copy(
            update={
                "name": self.name + TRUE_TASK,
                "title": f"{self.title}, true task",
                "true_task": True,
            }
        )


def ablation(
    method: str, part: str, title: str, settings: Mapping[str, Any], *, own_name: bool = False
) -> PlannerVariant:
    """Return a row that shows the worth of a part of a method."""
    name = f"{method}-{part}"
    return PlannerVariant(
        name=name, title=title, own_name=own_name, method=method, settings=settings, ablation=True
    )


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to plan."""

    name: str
    planner: type[Planner]
    settings: type[Settings] = NoSettings  # each field is a section of the presets
    title: str = ""  # for people; its name if empty
    line: str = ""
    paper: Paper | None = None  # None if unpublished
    needs: tuple[str, ...] = ()  # beside windows and its own networks
    uses: tuple[str, ...] = ()  # used if available, replaced otherwise
    variants: tuple[PlannerVariant, ...] = ()
