"""Metrics of procedure planning, in per cent.

Each is a sum over windows and a count, so parts of a split can be added up. A metric that is
registered in `METRICS` appears in all evaluations and tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "METRICS",
    "TOP_K",
    "Metric",
    "MetricSums",
    "ScoredPlans",
    "mean_accuracy",
    "mean_iou",
    "mean_iou_bitwise",
    "metric_heads",
    "metric_name",
    "position_accuracy",
    "success_rate",
    "task_accuracy",
    "top_k_success_rate",
]

TOP_K = 5
"""Default number of plans of the top-k success rate."""
_MISSING = -1  # fills the plans that a planner could not give
_EPSILON = 1e-6

Sum: TypeAlias = float | NDArray[np.float64]


def success_rate(predicted: ArrayLike, actual: ArrayLike) -> float:
    """SR: share of windows whose whole sequence is right, per cent.

    Args:
        predicted: Action ids [N, T].
        actual: Action ids [N, T].

    Raises:
        ValueError: Not integers, not equal in shape, or no window, for this and all metrics below.
    """
    return _percent(*_success(*_pair(predicted, actual)))


def mean_accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """mAcc: share of positions whose action is right. Arguments as in `success_rate`."""
    return _percent(*_accuracy(*_pair(predicted, actual)))


def mean_iou(predicted: ArrayLike, actual: ArrayLike) -> float:
    """mIoU: mean intersection over union of both sets of actions; arguments as above."""
    return _percent(*_iou(*_pair(predicted, actual)))


def mean_iou_bitwise(predicted: ArrayLike, actual: ArrayLike) -> float:
    """The "element-wise mIoU" of published tables: bitwise AND over bitwise OR of action *ids*.

    The mean over windows of Σ_t (predicted & actual) / (Σ_t (predicted | actual) + 1e-6), reported
    only for comparison with such tables. It does not measure overlap but depends on how actions are
    numbered: 6 for 7 counts 6/7, 8 for 7 nothing, action 0 for 0 nothing; if the ids of a task are
    neighbours, random steps score above 90 %. Arguments as in `success_rate`, not negative.
    """
    return _percent(*_bitwise(*_pair(predicted, actual)))


def position_accuracy(predicted: ArrayLike, actual: ArrayLike) -> NDArray[np.float64]:
    """Share of windows whose action is right at each position [T]; arguments as above."""
    left, right = _pair(predicted, actual)
    return np.asarray(100 * (left == right).mean(axis=0))


def top_k_success_rate(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Share of windows whose whole sequence [N, T] is among k plans [N, k, T]."""
    plans = np.asarray(predicted)
    if plans.ndim != 3 or not plans.size:
        raise ValueError(f"predicted has shape {list(plans.shape)}; expected [N, k, T], not empty")
    _, right = _pair(plans[:, 0], actual)
    return _percent(*_top_k(plans, right))


def task_accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Share of windows whose task is right; task ids [N] and [N]."""
    left, right = np.asarray(predicted), np.asarray(actual)
    return mean_accuracy(left.reshape(len(left), -1), right.reshape(len(right), -1))


@dataclass(frozen=True, kw_only=True)
class ScoredPlans:
    """Input of a metric: plans of some windows and the true sequences."""

    plans: NDArray[np.int64]  # the k best of each window, best first [N, k, T]; -1 if missing
    actual: NDArray[np.int64]  # [N, T]
    tasks: NDArray[np.int64] | None = None  # of the plans [N]; None without a notion of tasks
    actual_tasks: NDArray[np.int64] | None = None  # [N]; None if tasks are not scored

    @property
    def best(self) -> NDArray[np.int64]:
        """The best plan of each window [N, T]."""
        return self.plans[:, 0]

    @cached_property
    def planned(self) -> NDArray[np.bool_]:
        """Whether each window has a plan [N]."""
        return np.asarray((self.best != _MISSING).any(axis=1))


@dataclass(frozen=True)
class Metric:
    """A metric of evaluations and tables.

    `total` returns its sum over windows (or [T]) and the divisor; None if it does not apply.
    """

    total: Callable[[ScoredPlans], tuple[Sum, float] | None]
    head: str = ""  # of its column in tables, "top-k" for any number; empty without a column


def _total_bitwise(scored: ScoredPlans) -> tuple[float, float]:
    total, _ = _bitwise(scored.best[scored.planned], scored.actual[scored.planned])
    return total, len(scored.actual)


def _total_tasks(scored: ScoredPlans) -> tuple[float, float] | None:
    if scored.tasks is None or scored.actual_tasks is None:
        return None
    return float((scored.tasks == scored.actual_tasks).sum()), len(scored.actual_tasks)


def _total_positions(scored: ScoredPlans) -> tuple[Sum, float]:
    right = (scored.best == scored.actual).sum(axis=0).astype(np.float64)
    return np.asarray(right), len(scored.actual)


METRICS: dict[str, Metric] = {
    "success_rate": Metric(lambda scored: _success(scored.best, scored.actual), "SR"),
    "mean_accuracy": Metric(lambda scored: _accuracy(scored.best, scored.actual), "mAcc"),
    "mean_iou": Metric(lambda scored: _iou(scored.best, scored.actual), "mIoU"),
    "mean_iou_bitwise": Metric(_total_bitwise, "bitwise mIoU"),
    "top_k_success_rate": Metric(lambda scored: _top_k(scored.plans, scored.actual), "top-k SR"),
    "task_accuracy": Metric(_total_tasks, "task"),
    "position_accuracy": Metric(_total_positions),
}
"""All metrics by name, in the order of tables."""


def metric_heads(top_k: int = TOP_K) -> dict[str, str]:
    """Heads of the columns of tables, by the names of metrics in evaluations."""
    return {
        metric_name(name, top_k): metric.head.replace("top-k", f"top-{top_k}")
        for name, metric in METRICS.items()
        if metric.head
    }


def metric_name(name: str, top_k: int = TOP_K) -> str:
    """Name of a registered metric in evaluations, with the number of plans."""
    return name.replace("top_k", f"top_{top_k}")


@dataclass
class MetricSums:
    """All metrics accumulated over parts of a split."""

    top_k: int = TOP_K  # the k of the top-k success rate
    sums: dict[str, Sum] = field(default_factory=dict)  # sum of each metric over windows
    counts: dict[str, float] = field(default_factory=dict)  # divisor of each sum
    without_plan: int = 0  # windows without any plan; they count as wrong

    def add(
        self,
        plans: list[NDArray[np.int64]],
        actual: NDArray[np.int64],
        *,
        tasks: NDArray[np.int64] | None = None,
        actual_tasks: NDArray[np.int64] | None = None,
    ) -> None:
        """Add some windows: plans [k, T] of each, k ≥ 0, sequences [N, T] and tasks [N]."""
        padded = np.full((len(plans), self.top_k, actual.shape[1]), _MISSING, dtype=np.int64)
        for row, plan in enumerate(plans):
            padded[row, : min(len(plan), self.top_k)] = plan[: self.top_k]
        scored = ScoredPlans(plans=padded, actual=actual, tasks=tasks, actual_tasks=actual_tasks)
        self.without_plan += int((~scored.planned).sum())
        for name, metric in METRICS.items():
            part = metric.total(scored)
            if part is not None:
                total, count = part
                self.sums[name] = self.sums.get(name, 0.0) + total
                self.counts[name] = self.counts.get(name, 0.0) + count

    def percents(self) -> dict[str, float | list[float]]:
        """Every metric in per cent; a list of T for metrics of each position."""
        return {
            metric_name(name, self.top_k): (
                percent.tolist() if isinstance(percent, np.ndarray) else percent
            )
            for name, total in self.sums.items()
            for percent in [100 * total / self.counts[name]]
        }


def _pair(predicted: ArrayLike, actual: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    left, right = np.asarray(predicted), np.asarray(actual)
    for name, array in (("predicted", left), ("actual", right)):
        if array.dtype.kind not in "iu" or array.ndim != 2:
            raise ValueError(
                f"{name} has type {array.dtype} and shape {list(array.shape)}; expected integers "
                "[N, T]"
            )
    if left.shape != right.shape or not left.size:
        raise ValueError(
            f"predicted {list(left.shape)} and actual {list(right.shape)} must be equal in shape, "
            "not empty"
        )
    return left.astype(np.int64), right.astype(np.int64)


def _percent(total: float, count: float) -> float:
    return 100 * total / count


def _success(predicted: NDArray[np.int64], actual: NDArray[np.int64]) -> tuple[float, float]:
    return float((predicted == actual).all(axis=1).sum()), len(actual)


def _accuracy(predicted: NDArray[np.int64], actual: NDArray[np.int64]) -> tuple[float, float]:
    return float((predicted == actual).sum()), actual.size


def _iou(predicted: NDArray[np.int64], actual: NDArray[np.int64]) -> tuple[float, float]:
    total = 0.0
    for ours, theirs in zip(predicted.tolist(), actual.tolist(), strict=True):
        total += len(set(ours) & set(theirs)) / len(set(ours) | set(theirs))
    return total, len(actual)


def _bitwise(predicted: NDArray[np.int64], actual: NDArray[np.int64]) -> tuple[float, float]:
    if predicted.size and (predicted.min() < 0 or actual.min() < 0):
        raise ValueError("mean_iou_bitwise needs ids that are not negative")
    shares = (predicted & actual).sum(axis=1) / ((predicted | actual).sum(axis=1) + _EPSILON)
    return float(shares.sum()), len(actual)


def _top_k(plans: NDArray[np.int64], actual: NDArray[np.int64]) -> tuple[float, float]:
    return float((plans == actual[:, None]).all(axis=2).any(axis=1).sum()), len(actual)
