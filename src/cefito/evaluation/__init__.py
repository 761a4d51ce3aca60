"""Evaluation: metrics, statistics, and the scoring of planners and runs on windows."""

from cefito.evaluation.metrics import MetricSums, metric_value, training_orders
from cefito.evaluation.records import (
    Evaluation,
    RunEvaluation,
    TaskScores,
    VideoIntervals,
    WindowPlans,
    read_plans,
    save_plans,
)
from cefito.evaluation.runs import evaluate_run
from cefito.evaluation.score import ScoredWindows, evaluate_planner

__all__ = [
    "Evaluation",
    "MetricSums",
    "RunEvaluation",
    "ScoredWindows",
    "TaskScores",
    "VideoIntervals",
    "WindowPlans",
    "evaluate_planner",
    "evaluate_run",
    "metric_value",
    "read_plans",
    "save_plans",
    "training_orders",
]
