"""A study's results as CSV, to the last digit."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from cefito.evaluation.calibration import calibration_heads
from cefito.evaluation.metrics import metric_heads
from cefito.evaluation.records import ScoredCell
from cefito.evaluation.statistics import bootstrap_width
from cefito.study.results import Results
from cefito.study.tables import metric_interval
from cefito.study.variants import PlannerVariant

__all__ = ["to_csv"]

_COSTS = ("seconds_per_query", "token_forwards_per_query")


def to_csv(results: Results) -> str:
    """All scores, a line for each row and horizon: means and half-widths, and each step's accuracy.

    Args:
        results: As `gather` gives them.
    """
    longest = max(results.horizons)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            "row",
            "planner",
            "dataset",
            "selection",
            "horizon",
            "seeds",
            "windows",
            "sampled_from",
            "exact",
            *(f"{name}{part}" for name in _scores() for part in ("", "_half_width_90")),
            "success_rate_bootstrap_width",
            *_COSTS,
            "parameters",
            *(f"accuracy_step_{step + 1}" for step in range(longest)),
        ]
    )
    for horizon in results.horizons:
        for row in results.rows:
            cells = results.scored(horizon, row.name)
            if cells:
                line = _line(results, row, cells)
                writer.writerow([*line, *[""] * (longest - horizon)])
    return stream.getvalue()


def _scores() -> list[str]:
    return [*metric_heads(), *calibration_heads()]


def _line(results: Results, row: PlannerVariant, cells: Sequence[ScoredCell]) -> list[Any]:
    first = cells[0]
    line: list[Any] = [
        row.name,
        row.title,
        results.dataset.name,
        results.selection,
        first.horizon,
        len(cells),
        first.windows,
        first.sampled_from,
        all(cell.exact for cell in cells),
    ]
    for name in _scores():
        interval = metric_interval(cells, name)
        mean = None if interval is None else interval.mean
        half_width = None if interval is None else interval.half_width
        line += ["" if value is None else value for value in (mean, half_width)]
    line.append(bootstrap_width([cell.success_rate for cell in cells]) if len(cells) > 1 else "")
    line += [np.mean([getattr(cell, cost) for cell in cells]) for cost in _COSTS]
    line.append(sum(first.parameters.values()))
    line += np.mean([cell.position_accuracy for cell in cells], axis=0).tolist()
    return line
