"""Scores as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cefito.evaluation.records import Evaluation, RunEvaluation, VideoIntervals

__all__ = [
    "interval_cells",
    "metric_cells",
    "metric_columns",
    "position_table",
    "resampled",
    "task_table",
]

_LEFT_OUT = ("mean_iou_bitwise",)  # only for comparison with published tables


def metric_columns(evaluations: Sequence[Evaluation], *, published: bool = False) -> dict[str, str]:
    """Heads of the columns by metrics; `published` adds those only for published tables."""
    from cefito.evaluation.metrics import metric_heads
    from cefito.evaluation.records import CALIBRATION_HEADS

    left_out = () if published else _LEFT_OUT
    heads = {name: head for name, head in metric_heads().items() if name not in left_out}
    if any(evaluation.calibration is not None for evaluation in evaluations):
        heads |= CALIBRATION_HEADS
    return heads


def metric_cells(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Cells of one row under the columns of these names."""
    return [_number(evaluation.percent(name)) for name in columns]


def interval_cells(intervals: VideoIntervals, columns: Iterable[str]) -> list[str]:
    """Cells of the intervals under the columns of these names."""
    ends = [intervals.ends(name) for name in columns]
    return ["–" if one is None else f"{one[0]:.2f} to {one[1]:.2f}" for one in ends]


def position_table(scores: RunEvaluation) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the accuracy at each step, with intervals if there are any."""
    steps = [str(step) for step in range(1, scores.horizon + 1)]
    rows = [[scores.planner, *(f"{value:.2f}" for value in scores.position_accuracy)]]
    if scores.intervals is not None:
        ends = (scores.intervals.low, scores.intervals.high)
        low, high = (end["position_accuracy"] for end in ends)
        if isinstance(low, list) and isinstance(high, list):
            pairs = zip(low, high, strict=True)
            rows.append([resampled(scores.intervals), *(f"{a:.2f} to {b:.2f}" for a, b in pairs)])
    return ["right action at step", *steps], rows


def task_table(scores: RunEvaluation) -> tuple[list[str], list[list[object]]]:
    """Heads and rows of the metrics of each task."""
    columns = {
        name: head for name, head in metric_columns([scores]).items() if name in scores.metrics
    }
    rows: list[list[object]] = []
    for part in scores.per_task or ():
        numbers = [_number(part.metrics.get(name)) for name in columns]
        rows.append([part.task, part.name, part.windows, part.videos, *numbers])
    heads = columns | {"task_accuracy": "task right"} if "task_accuracy" in columns else columns
    return ["id", "task", "windows", "videos", *heads.values()], rows


def resampled(intervals: VideoIntervals) -> str:
    """Name of intervals in tables."""
    return f"{100 * intervals.level:g} % interval, {intervals.videos:,} videos resampled"


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"
