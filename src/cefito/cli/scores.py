"""Scores as cells of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cefito.evaluation.records import Evaluation

__all__ = ["metric_cells", "metric_columns"]

_LEFT_OUT = ("mean_iou_bitwise",)
"""Metrics that are for comparison with published tables only."""


def metric_columns() -> dict[str, str]:
    """Heads of the columns, per cent, by the names of the metrics."""
    from cefito.evaluation.metrics import metric_heads

    return {name: head for name, head in metric_heads().items() if name not in _LEFT_OUT}


def metric_cells(evaluation: Evaluation) -> list[str]:
    """Cells of one row under `metric_columns`."""
    values = [evaluation.percent(name) for name in metric_columns()]
    return ["–" if value is None else f"{value:.2f}" for value in values]
