"""Scores as cells of a table."""

from __future__ import annotations

__all__ = ["METRIC_COLUMNS", "metric_cells"]

METRIC_COLUMNS = ("SR", "mAcc", "mIoU", "top-5 SR", "task")
"""Heads of a table of scores, per cent."""


def metric_cells(metrics: dict[str, float]) -> list[str]:
    """Cells of one row under `METRIC_COLUMNS`."""
    names = ("success_rate", "mean_accuracy", "mean_iou", "top_5_success_rate", "task_accuracy")
    return [f"{metrics[name]:.2f}" if name in metrics else "–" for name in names]
