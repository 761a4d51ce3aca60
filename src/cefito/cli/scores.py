"""Scores as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cefito.markup import counted

if TYPE_CHECKING:
    from cefito.evaluation.records import Evaluation, RunEvaluation

__all__ = ["metric_cells", "metric_columns", "score_table", "task_table"]


def metric_columns(evaluations: Sequence[Evaluation], *, brief: bool = True) -> dict[str, str]:
    """Heads of metrics, few or all, that an evaluation has, by their names."""
    from cefito.evaluation.metrics import metric_heads
    from cefito.evaluation.records import CALIBRATION_HEADS

    heads = metric_heads(brief=brief) | CALIBRATION_HEADS
    return {
        name: head
        for name, head in heads.items()
        if any(evaluation.percent(name) is not None for evaluation in evaluations)
    }


def metric_cells(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Cells of one row under the columns of these names."""
    return [_number(evaluation.percent(name)) for name in columns]


def score_table(scores: RunEvaluation) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: every metric and the accuracy of each step, with intervals if known."""
    columns, intervals = metric_columns([scores], brief=False), scores.intervals
    values = scores.metrics | {name: scores.percent(name) for name in columns}
    lines = [(head, name, 0) for name, head in columns.items()]
    steps = range(len(scores.position_accuracy))
    lines += [(f"right action at step {step + 1}", "position_accuracy", step) for step in steps]
    heads = ["per cent", scores.planner]
    if intervals is not None:
        videos = counted(intervals.videos, "video")
        heads.append(f"{100 * intervals.level:g} % interval, {videos} resampled")
    if scores.shared_metrics is not None:
        heads.append("in the shared vocabulary")
    rows = []
    for head, name, step in lines:
        row = [head, _number(_at(values, name, step))]
        if intervals is not None:
            ends = [_number(_at(end, name, step)) for end in (intervals.low, intervals.high)]
            row.append(" to ".join(ends) if name in intervals.low else "–")
        if scores.shared_metrics is not None:
            row.append(_number(_at(scores.shared_metrics, name, step)))
        rows.append(row)
    return heads, rows


def task_table(scores: RunEvaluation) -> tuple[list[str], list[list[object]]]:
    """Heads and rows of a few metrics of each task."""
    columns = {
        name: head for name, head in metric_columns([scores]).items() if name in scores.metrics
    }
    rows: list[list[object]] = []
    for part in scores.per_task:
        numbers = [_number(part.metrics.get(name)) for name in columns]
        rows.append([part.name, part.task, part.windows, part.videos, *numbers])
    heads = columns | {"task_accuracy": "task right"} if "task_accuracy" in columns else columns
    return ["task", "id", "windows", "videos", *heads.values()], rows


def _at(metrics: Mapping[str, object], name: str, step: int) -> object:
    """A metric, or its value at a step if it has one for each; None if it is not known."""
    value = metrics.get(name)
    return value[step] if isinstance(value, list) else value


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"
