"""Evaluation: metrics, statistics, and the scoring of planners and runs on windows."""

from cefito.evaluation.metrics import (
    MetricSums,
    edit_similarity,
    length_accuracy,
    mean_accuracy,
    mean_iou,
    mean_iou_bitwise,
    next_step_accuracy,
    order_tolerant_success,
    position_accuracy,
    success_rate,
    task_accuracy,
    top_k_success_rate,
)
from cefito.evaluation.orders import training_orders
from cefito.evaluation.plan_files import WindowPlans, read_plans, save_plans, window_plans
from cefito.evaluation.records import Evaluation, RunEvaluation, TaskScores, VideoIntervals
from cefito.evaluation.runs import evaluate_run
from cefito.evaluation.score import evaluate_planner, task_scores, video_intervals

__all__ = [
    "Evaluation",
    "MetricSums",
    "RunEvaluation",
    "TaskScores",
    "VideoIntervals",
    "WindowPlans",
    "edit_similarity",
    "evaluate_planner",
    "evaluate_run",
    "length_accuracy",
    "mean_accuracy",
    "mean_iou",
    "mean_iou_bitwise",
    "next_step_accuracy",
    "order_tolerant_success",
    "position_accuracy",
    "read_plans",
    "save_plans",
    "success_rate",
    "task_accuracy",
    "task_scores",
    "top_k_success_rate",
    "training_orders",
    "video_intervals",
    "window_plans",
]
