"""Scores as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cefito.evaluation.breakdown import VideoIntervals
    from cefito.evaluation.records import Evaluation, RunEvaluation

__all__ = [
    "interval_cells",
    "metric_cells",
    "metric_columns",
    "position_table",
    "resampled",
    "task_table",
]

_LEFT_OUT = ("mean_iou_bitwise",)
"""Metrics that are for comparison with published tables only."""


def metric_columns(evaluations: Sequence[Evaluation], *, published: bool = False) -> dict[str, str]:
    """Heads of the columns, per cent, by the names of the metrics.

    Those of the calibration only where one of the evaluations has it.

    Args:
        evaluations: What is shown.
        published: Also those that are for comparison with published tables only.
    """
    from cefito.evaluation.calibration import calibration_heads
    from cefito.evaluation.metrics import metric_heads

    left_out = () if published else _LEFT_OUT
    heads = {name: head for name, head in metric_heads().items() if name not in left_out}
    if any(evaluation.calibration is not None for evaluation in evaluations):
        heads |= calibration_heads()
    return heads


def metric_cells(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Cells of one row under the columns of these names."""
    values = [evaluation.percent(name) for name in columns]
    return [number(value) for value in values]


def interval_cells(intervals: VideoIntervals, columns: Iterable[str]) -> list[str]:
    """Cells of the intervals under the columns of these names."""
    ends = [(intervals.low.get(name), intervals.high.get(name)) for name in columns]
    return [
        f"{low:.2f} to {high:.2f}" if isinstance(low, float) and isinstance(high, float) else "–"
        for low, high in ends
    ]


def position_table(scores: RunEvaluation) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the accuracy at each step, with intervals where there are some."""
    steps = [str(step) for step in range(1, scores.horizon + 1)]
    rows = [[scores.planner, *(f"{value:.2f}" for value in scores.position_accuracy)]]
    if scores.intervals is not None:
        low, high = (
            ends["position_accuracy"] for ends in (scores.intervals.low, scores.intervals.high)
        )
        if isinstance(low, list) and isinstance(high, list):
            pairs = zip(low, high, strict=True)
            rows.append([resampled(scores.intervals), *(f"{a:.2f} to {b:.2f}" for a, b in pairs)])
    return ["right action at step", *steps], rows


def task_table(scores: RunEvaluation) -> tuple[list[str], list[list[object]]]:
    """Heads and rows of the metrics of each task."""
    columns = {
        name: head for name, head in metric_columns([scores]).items() if name in scores.metrics
    }
    rows: list[list[object]] = [
        [
            part.task,
            part.name,
            part.windows,
            part.videos,
            *(number(part.metrics.get(name)) for name in columns),
        ]
        for part in scores.per_task or ()
    ]
    return ["id", "task", "windows", "videos", *_plain_task(columns.values())], rows


def resampled(intervals: VideoIntervals) -> str:
    """What intervals are called in tables."""
    return f"{100 * intervals.level:g} % interval, {intervals.videos:,} videos resampled"


def number(value: object) -> str:
    """A cell with a number that may be missing."""
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _plain_task(heads: Iterable[str]) -> list[str]:
    """The heads, told apart from the column of the tasks' names."""
    return ["task right" if head == "task" else head for head in heads]
