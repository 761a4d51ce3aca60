"""Rows of tables: a method, how it is trained and how it plans; and those that have a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from cefito.errors import ConfigError
from cefito.planners.base import Planner, who
from cefito.planners.registry import find_method
from cefito.search.settings import search_settings
from cefito.settings import Settings

__all__ = ["ALL", "ROWS", "TRUE_TASK", "PlannerVariant", "find_rows"]

ALL = "all"
"""The name of all rows but oracles, ablations and, unless one is named, language models."""

TRUE_TASK = "-true-task"
"""What a row's name ends with where the true task is given."""
EXAMPLES = 5
"""Sequences of training windows that rows with examples tell a language model."""


_TOLD = {
    "true_task": "the task",
    "true_ends": "the true ends",
    "true_between": "the states between",
}
"""What a row may be given that no planner can know; each is also an ability."""


class PlannerVariant(Settings):
    """One line of a table: a method, how it is trained and how it plans.

    Attributes:
        name: Its name in files and on the command line.
        title: Its name in tables.
        own_name: Whether tables rather show what the trained planner calls itself, which says how
            it was trained. Not kept in files: titles are settled there.
        method: Name of the method.
        settings: Settings changed in training, dotted keys as in `load_config`.
        search: Settings of the search changed in planning, as in `search_settings`; only of methods
            that have a search to choose.
        exhaustive: Whether planning costs so much that long horizons are scored on a sample.
        true_task: Whether the true task is given.
        true_ends: Whether the true first and last action are given; in files only where they are.
        true_between: Whether the true observations between the steps are given; likewise.
        ablation: Whether it shows what a part of another row is worth; "all" leaves it out. Not
            kept in files.
    """

    name: str
    title: str
    own_name: bool = Field(default=False, exclude=True)
    method: str
    settings: Mapping[str, Any] = {}
    search: Mapping[str, Any] = {}
    exhaustive: bool = False
    true_task: bool = False
    true_ends: bool = False
    true_between: bool = False
    ablation: bool = Field(default=False, exclude=True)

    @property
    def oracle(self) -> bool:
        """Whether it is given what no planner can know."""
        return any(getattr(self, name) for name in _TOLD)

    @property
    def asks(self) -> bool:
        """Whether it asks a language model, which then has to be named."""
        return "llm" in find_method(self.method).settings.model_fields

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        for name in ("true_ends", "true_between"):
            if not values.get(name):
                values.pop(name, None)
        return values

    def check(self) -> None:
        """Refuse what its method cannot do.

        Raises:
            ConfigError: No such method, or it makes no use of the task, the ends or the states
                between, or has no search to choose, though the row asks for it.
        """
        abilities = find_method(self.method).planner.abilities
        for ability, told in _TOLD.items():
            if getattr(self, ability) and not getattr(abilities, ability):
                raise ConfigError(
                    f"'{self.name}': {self.title} makes no use of {told}; {who(ability, 'do')}.",
                    setting="planners",
                )
        if self.search and not abilities.search:
            raise ConfigError(
                f"'{self.name}': the method '{self.method}' has no search to choose; "
                f"{who('search')}.",
                setting="planners",
            )

    def apply(self, planner: Planner) -> Planner:
        """A planner that searches as the row says.

        Raises:
            ConfigError: Settings of the search that cannot be, or a planner without a search to
                choose.
        """
        if not self.search:
            return planner
        trained = planner.describe().search
        if trained is None:
            raise ConfigError(
                f"'{self.name}': {planner.name} has no search to choose; {who('search')}."
            )
        return planner.with_search(search_settings(trained, **self.search))

    def with_true_task(self) -> PlannerVariant:
        """The same with the true task given.

        Raises:
            ConfigError: The method makes no use of it.
        """
        told = self.model_copy(update={"name": self.name + TRUE_TASK, "true_task": True})
        told.check()
        return told.model_copy(update={"title": f"{self.title}, true task"})


_NAMED = (
    PlannerVariant(
        name="cefito",
        title="CEFITO, exact search",
        method="cefito",
        search={"method": "exhaustive"},
        exhaustive=True,
    ),
    PlannerVariant(
        name="cefito-guided",
        title="CEFITO, guided search",
        method="cefito",
        search={"method": "guided"},
    ),
    PlannerVariant(
        name="cefito-energy",
        title="CEFITO, energy alone",
        method="cefito",
        search={"method": "exhaustive", "objective": "energy", "tasks": 1},
        exhaustive=True,
        ablation=True,
    ),
    PlannerVariant(
        name="cefito-energy-guided",
        title="CEFITO, energy alone, guided search",
        method="cefito",
        search={
            "method": "guided",
            "objective": "energy",
            "tasks": 1,
            "proposals": 512,
            "starts": 12,
            "refinements": 256,
        },
        ablation=True,
    ),
    PlannerVariant(
        name="cefito-no-energy",
        title="CEFITO without the energy",
        method="cefito",
        search={"method": "guided", "objective": "likelihood"},
        ablation=True,
    ),
    PlannerVariant(name="chain", title="chain", method="chain"),
    PlannerVariant(name="viterbi", title="ViterbiPlanNet", own_name=True, method="viterbi"),
    PlannerVariant(
        name="viterbi-unaligned",
        title="ViterbiPlanNet (no alignment)",
        own_name=True,
        method="viterbi",
        settings={"viterbi.descriptions": "none"},
        ablation=True,
    ),
    PlannerVariant(name="pdpp", title="PDPP", method="pdpp"),
    PlannerVariant(name="mtid", title="MTID", method="mtid"),
    PlannerVariant(
        name="mtid-uninterpolated",
        title="MTID without interpolation",
        method="mtid",
        settings={"mtid.interpolation": False},
        ablation=True,
    ),
    PlannerVariant(
        name="mtid-masked",
        title="MTID, masked",
        method="mtid",
        settings={"mtid.mask": True},
        ablation=True,
    ),
    PlannerVariant(name="kepp", title="KEPP", own_name=True, method="kepp"),
    PlannerVariant(
        name="kepp-in-sample",
        title="KEPP (in-sample paths)",
        own_name=True,
        method="kepp",
        settings={"kepp.paths": "in-sample"},
        ablation=True,
    ),
    PlannerVariant(
        name="kepp-ends",
        title="KEPP (ends alone)",
        own_name=True,
        method="kepp",
        settings={"kepp.knowledge": "ends"},
        ablation=True,
    ),
    PlannerVariant(
        name="kepp-graphless",
        title="KEPP (no graph, no ends)",
        own_name=True,
        method="kepp",
        settings={"kepp.knowledge": "none"},
        ablation=True,
    ),
    PlannerVariant(name="schema", title="SCHEMA", own_name=True, method="schema"),
    PlannerVariant(
        name="schema-undescribed",
        title="SCHEMA (no descriptions)",
        own_name=True,
        method="schema",
        settings={"schema_model.descriptions": "none"},
        ablation=True,
    ),
    PlannerVariant(
        name="planllm", title="PlanLLM-style (no BERT)", own_name=True, method="planllm"
    ),
    PlannerVariant(
        name="planllm-leaky",
        title="PlanLLM-style (no BERT, sees the states between: oracle)",
        own_name=True,
        method="planllm-leaky",
        true_between=True,
    ),
    PlannerVariant(name="p3iv", title="P3IV", own_name=True, method="p3iv"),
    PlannerVariant(
        name="p3iv-noiseless",
        title="P3IV (no noise)",
        own_name=True,
        method="p3iv",
        settings={"p3iv.noise": 0, "p3iv.diversity": 0.0},
        ablation=True,
    ),
    PlannerVariant(
        name="p3iv-released",
        title="P3IV (as released)",
        own_name=True,
        method="p3iv",
        settings={
            "p3iv.memory": "released",
            "p3iv.decoding": "greedy",
            "p3iv.test_dropout": True,
        },
        ablation=True,
    ),
    PlannerVariant(name="pkg", title="PKG, exact", method="pkg"),
    PlannerVariant(name="pkg-beam", title="PKG, beam search", method="pkg-beam"),
    PlannerVariant(
        name="pkg-oracle-ends", title="PKG, true ends (oracle)", method="pkg", true_ends=True
    ),
    PlannerVariant(name="llm-ends", title="LLM, recognised ends", method="llm-ends"),
    PlannerVariant(
        name="llm-ends-pkg",
        title="LLM, recognised ends + PKG",
        method="llm-ends",
        settings={"llm.graph": True},
    ),
    PlannerVariant(
        name="llm-ends-examples",
        title="LLM, recognised ends + examples",
        method="llm-ends",
        settings={"llm.examples": EXAMPLES},
    ),
    PlannerVariant(name="llm-ranked", title="LLM, ranked ends", method="llm-ranked"),
    PlannerVariant(
        name="llm-ranked-pkg",
        title="LLM, ranked ends + PKG",
        method="llm-ranked",
        settings={"llm.graph": True},
    ),
    PlannerVariant(
        name="llm-ranked-examples",
        title="LLM, ranked ends + examples",
        method="llm-ranked",
        settings={"llm.examples": EXAMPLES},
    ),
    PlannerVariant(
        name="llm-ranked-pkg-examples",
        title="LLM, ranked ends + PKG + examples",
        method="llm-ranked",
        settings={"llm.graph": True, "llm.examples": EXAMPLES},
    ),
    PlannerVariant(
        name="llm-oracle-ends",
        title="LLM, true ends (oracle)",
        method="llm-ends",
        true_ends=True,
    ),
    PlannerVariant(
        name="llm-oracle-ends-pkg",
        title="LLM, true ends (oracle) + PKG",
        method="llm-ends",
        settings={"llm.graph": True},
        true_ends=True,
    ),
    PlannerVariant(name="nearest", title="nearest window", method="nearest"),
    PlannerVariant(name="frequent", title="most frequent window", method="frequent"),
)
ROWS: dict[str, PlannerVariant] = {row.name: row for row in _NAMED}
"""Rows that can be asked for by name.

Each also with `-true-task` behind its name, where the method makes use of the task.
"""


def find_rows(names: Sequence[str], *, language_model: bool = False) -> tuple[PlannerVariant, ...]:
    """Rows by their names.

    Args:
        names: Of rows. "all" stands for those that are no oracle and no ablation, without those
            that are named beside it.
        language_model: Whether "all" has those that ask a language model.

    Raises:
        ConfigError: No such row, or one twice.
    """
    rows: list[PlannerVariant] = []
    for name in names:
        if name == ALL:
            rows += [
                row
                for row in ROWS.values()
                if not (row.oracle or row.ablation or (row.asks and not language_model))
                and row.name not in names
            ]
            continue
        base = name.removesuffix(TRUE_TASK)
        if base not in ROWS:
            raise ConfigError(
                f"no planner '{name}'; there are {', '.join(ROWS)}, each also with '{TRUE_TASK}' "
                f"behind it, and '{ALL}'.",
                setting="planners",
            )
        rows.append(ROWS[base] if base == name else ROWS[base].with_true_task())
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError(f"planners {', '.join(names)}: one is named twice.", setting="planners")
    return tuple(rows)
