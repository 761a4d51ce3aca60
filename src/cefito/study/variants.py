"""Rows of tables by their names."""

from __future__ import annotations

from collections.abc import Sequence

from cefito.errors import ConfigError
from cefito.planners.methods import (
    METHODS,
    ORACLES,
    SERVER,
    TRUE_TASK,
    PlannerVariant,
    find_method,
    methods_with,
)

__all__ = ["ALL", "ROWS", "PlannerVariant", "check_variant", "find_rows", "needs_server"]

ALL = "all"
"""Name of all rows but oracles, ablations and, unless one is named, language models."""
ROWS: dict[str, PlannerVariant] = {
    row.name: row for method in METHODS.values() for row in method.variants
}
"""Rows by their names; `find_rows` also takes names with `-true-task` behind them."""


def needs_server(row: PlannerVariant) -> bool:
    """Return whether a row asks a language model, which settings must name."""
    return SERVER in find_method(row.method).needs


def check_variant(row: PlannerVariant) -> None:
    """Refuse a row that asks for what its method cannot do."""
    method = find_method(row.method)
    for ability, truth in ORACLES.items():
        if getattr(row, ability) and not getattr(method.planner.abilities, ability):
            raise ConfigError(
                f"'{row.name}': {method.title or method.name} makes no use of {truth}; of the "
                f"methods only {methods_with(ability)} do.",
                setting="planners",
            )
    if row.search and not method.planner.abilities.search:
        raise ConfigError(
            f"'{row.name}': the method '{row.method}' has no search to choose; of the methods only "
            f"{methods_with('search')} can.",
            setting="planners",
        )


def find_rows(names: Sequence[str], *, language_model: bool = False) -> tuple[PlannerVariant, ...]:
    """Rows by their names; "all" stands for those that `ALL` describes."""
    rows: list[PlannerVariant] = []
    for name in names:
        if name == ALL:
            rows += [
                row
                for row in ROWS.values()
                if not (row.oracle or row.ablation or (needs_server(row) and not language_model))
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
        row = ROWS[base] if base == name else ROWS[base].with_true_task()
        check_variant(row)
        rows.append(row)
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError(f"planners {', '.join(names)}: one is named twice.", setting="planners")
    return tuple(rows)
