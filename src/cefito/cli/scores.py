"""Scores as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cefito.evaluation.records import Evaluation

__all__ = ["metric_cells", "metric_columns"]

_LEFT_OUT = ("mean_iou_bitwise",)
"""Metrics that are for comparison with published tables only."""


def metric_columns(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Heads of the columns, per cent, by the names of the metrics.

    Those of the calibration only where one of the evaluations has it.
    """
    from cefito.evaluation.calibration import calibration_heads
    from cefito.evaluation.metrics import metric_heads

    heads = {name: head for name, head in metric_heads().items() if name not in _LEFT_OUT}
    if any(evaluation.calibration is not None for evaluation in evaluations):
        heads |= calibration_heads()
    return heads


def metric_cells(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Cells of one row under the columns of these names."""
    values = [evaluation.percent(name) for name in columns]
    return ["–" if value is None else f"{value:.2f}" for value in values]
