"""Does the energy add? What validation windows say of it, for each row that has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cefito.evaluation.table import NONE, Entry, Table, signed
from cefito.planners.base import Evidence
from cefito.study.results import Results
from cefito.study.variants import PlannerVariant

__all__ = ["energy_table"]

_NOTE = (
    "Coefficient: weight of the energy, beside all other terms, in a conditional logistic "
    "regression of the true sequence among the likeliest of a validation window; 90 % interval "
    "with whole videos as units. Gain: log-likelihood a window on videos that no weight was "
    "fitted on, ± its standard error. All are means over seeds, which share the windows. Kept: for "
    "how many seeds the gain exceeds its error, and success or accuracy rises while neither falls. "
    "Rows of one training share a line."
)


def energy_table(results: Results) -> Table:
    """What was found of the energy, a line for each training and horizon; perhaps none.

    Args:
        results: As `gather` gives them.
    """
    lines = []
    for row in _trained(results.rows):
        for horizon in results.horizons:
            found = [
                cell.evidence
                for cell in results.scored(horizon, row.name)
                if cell.evidence is not None
            ]
            if found:
                texts = (row.title, str(horizon), *_texts(found))
                lines.append(tuple(map(Entry, texts)))
    return Table(
        title=f"{results.dataset.name}: does the energy add?",
        heads=("planner", "T", "coefficient", "90 % interval", "gain", "kept"),
        lines=tuple(lines),
        notes=(_NOTE,),
    )


def _trained(rows: Sequence[PlannerVariant]) -> list[PlannerVariant]:
    """The first row of each training: how it plans has no part in what was found."""
    first: dict[str, PlannerVariant] = {}
    for row in rows:
        first.setdefault(repr((row.method, sorted(row.settings.items()))), row)
    return list(first.values())


def _texts(found: Sequence[Evidence]) -> tuple[str, str, str, str]:
    low, high, error = (
        _mean([getattr(one, name) for one in found]) for name in ("low", "high", "error")
    )
    gain = float(np.mean([one.gain for one in found]))
    kept = sum(one.kept for one in found)
    return (
        signed(float(np.mean([one.coefficient for one in found]))),
        NONE if low is None or high is None else f"{signed(low)} to {signed(high)}",
        f"{gain:+.4f}" + ("" if error is None else f" ± {error:.4f}"),
        f"in {kept} of {len(found)}",
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None
