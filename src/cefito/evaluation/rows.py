"""Rows of tables: a method, how it is trained and how it plans.

Those that can be asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cefito.errors import ConfigError
from cefito.planners.registry import find_method

__all__ = ["ROWS", "TRUE_TASK", "Row", "find_rows"]

TRUE_TASK = "-true-task"
"""What a row's name ends with where the true task is given."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: a method, how it is trained and how it plans.

    Attributes:
        name: Its name in files and on the command line.
        title: Its name in tables.
        method: Name of the method.
        settings: Settings changed in training, dotted keys as in `load_config`.
        search: Settings of the search changed in planning, as in `search_settings`; of CEFITO only.
        exhaustive: Whether planning costs so much that long horizons are scored on a sample.
        true_task: Whether the true task is given.
    """

    name: str
    title: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    exhaustive: bool = False
    true_task: bool = False

    def with_true_task(self) -> Row:
        """The same with the true task given.

        Raises:
            ConfigError: The method makes no use of it.
        """
        if not find_method(self.method).uses_task:
            raise ConfigError(f"'{self.name}{TRUE_TASK}': {self.title} makes no use of the task.")
        return replace(
            self, name=self.name + TRUE_TASK, title=f"{self.title}, true task", true_task=True
        )


_PAPER = {"method": "exhaustive", "objective": "energy", "tasks": 1}
ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row(
            name="cefito",
            title="CEFITO, exact search",
            method="cefito",
            search={"method": "exhaustive"},
            exhaustive=True,
        ),
        Row(
            name="cefito-guided",
            title="CEFITO, guided search",
            method="cefito",
            search={"method": "guided"},
        ),
        Row(
            name="cefito-energy",
            title="CEFITO, energy alone",
            method="cefito",
            search=_PAPER,
            exhaustive=True,
        ),
        Row(
            name="cefito-no-energy",
            title="CEFITO without the energy",
            method="cefito",
            search={"method": "guided", "objective": "likelihood"},
        ),
        Row(name="viterbi", title="ViterbiPlanNet", method="viterbi"),
        Row(name="pdpp", title="PDPP", method="pdpp"),
        Row(name="pkg", title="PKG, exact", method="pkg"),
        Row(name="pkg-beam", title="PKG, beam search", method="pkg-beam"),
        Row(name="nearest", title="nearest window", method="nearest"),
        Row(name="frequent", title="most frequent window", method="frequent"),
    )
}
"""Rows that can be asked for by name.

Each also with `-true-task` behind it where the method makes use of the task.
"""


def find_rows(names: Sequence[str]) -> tuple[Row, ...]:
    """Rows by their names.

    Raises:
        ConfigError: No such row, or one twice.
    """
    rows = []
    for name in names:
        base = name.removesuffix(TRUE_TASK)
        if base not in ROWS:
            raise ConfigError(
                f"no planner '{name}'; there are {', '.join(ROWS)}, each also with '{TRUE_TASK}' "
                "behind it."
            )
        rows.append(ROWS[base] if base == name else ROWS[base].with_true_task())
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError(f"planners {', '.join(names)}: one is named twice.")
    return tuple(rows)
