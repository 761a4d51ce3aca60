"""Evaluation: metrics, the scoring of planners on windows, tables and figures."""

from cefito.evaluation.metrics import (
    MetricSums,
    mean_accuracy,
    mean_iou,
    mean_iou_bitwise,
    position_accuracy,
    success_rate,
    task_accuracy,
    top_k_success_rate,
)
from cefito.evaluation.score import Evaluation, evaluate_planner

__all__ = [
    "Evaluation",
    "MetricSums",
    "evaluate_planner",
    "mean_accuracy",
    "mean_iou",
    "mean_iou_bitwise",
    "position_accuracy",
    "success_rate",
    "task_accuracy",
    "top_k_success_rate",
]
