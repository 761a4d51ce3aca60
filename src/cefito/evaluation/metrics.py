"""Metrics of procedure planning, in per cent, each a sum over windows and a count.

So that parts can be added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MetricSums",
    "mean_accuracy",
    "mean_iou",
    "mean_iou_bitwise",
    "position_accuracy",
    "success_rate",
    "task_accuracy",
    "top_k_success_rate",
]

_MISSING = -1  # stands in for every action of a plan that a planner could not give
_EPSILON = 1e-6


def success_rate(predicted: ArrayLike, actual: ArrayLike) -> float:
    """SR: share of windows whose whole sequence is right.

    Args:
        predicted: Action ids [N, T].
        actual: Action ids [N, T].

    Returns:
        Per cent.

    Raises:
        ValueError: Not integers, not equal in shape, or no window at all. So for all metrics here.
    """
    return _percent(*_success(*_pair(predicted, actual)))


def mean_accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """mAcc: share of positions whose action is right. Arguments as in `success_rate`."""
    return _percent(*_accuracy(*_pair(predicted, actual)))


def mean_iou(predicted: ArrayLike, actual: ArrayLike) -> float:
    """mIoU: for each window the intersection over union of the two sets of actions.

    Averaged over windows.

    Independent of order within a window, of batches and of how actions are numbered. Arguments as
    in `success_rate`.
    """
    return _percent(*_iou(*_pair(predicted, actual)))


def mean_iou_bitwise(predicted: ArrayLike, actual: ArrayLike) -> float:
    """The "element-wise mIoU" of published tables.

    Bitwise AND over bitwise OR of the action *ids*. Not an overlap measure.

    For each window the sum over positions of `predicted & actual`, the ids taken as binary numbers,
    is divided by the sum of `predicted | actual` (plus 1e-6), then averaged over windows. It was
    presumably meant for one-hot vectors. On ids it
    depends on how actions are numbered: 6 for 7 counts 6/7, 8 for 7 counts nothing; where the ids
    of a task are neighbours, random steps of the right task score above 90 %. A right prediction of
    action 0 everywhere counts nothing. Reported for comparison with such tables only. Arguments as
    in `success_rate`; ids must not be negative.
    """
    return _percent(*_bitwise(*_pair(predicted, actual)))


def position_accuracy(predicted: ArrayLike, actual: ArrayLike) -> NDArray[np.float64]:
    """Share of windows whose action is right, for each position, per cent [T].

    Arguments as in `success_rate`.
    """
    left, right = _pair(predicted, actual)
    return np.asarray(100 * (left == right).mean(axis=0))


def top_k_success_rate(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Share of windows whose whole sequence is among k plans.

    Args:
        predicted: Action ids [N, k, T].
        actual: Action ids [N, T].
    """
    plans = np.asarray(predicted)
    if plans.ndim != 3 or not plans.size:
        raise ValueError(f"predicted has shape {list(plans.shape)}; expected [N, k, T], not empty")
    _, right = _pair(plans[:, 0], actual)
    return _percent(*_top_k(plans, right))


def task_accuracy(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Share of windows whose task is right; task ids [N] and [N]."""
    left, right = np.asarray(predicted), np.asarray(actual)
    return mean_accuracy(left.reshape(len(left), -1), right.reshape(len(right), -1))


@dataclass
class MetricSums:
    """All metrics accumulated over parts of a split.

    Attributes:
        top_k: How many plans a window the top-k success rate looks at.
        sums: Sum of each metric, in windows.
        counts: Number that each is divided by.
        positions: Right actions at each position [T].
        without_plan: Windows for which the planner gave no plan; they count as wrong.
    """

    top_k: int = 5
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    positions: NDArray[np.float64] | None = None
    without_plan: int = 0

    def add(
        self,
        plans: list[NDArray[np.int64]],
        actual: NDArray[np.int64],
        *,
        tasks: NDArray[np.int64] | None = None,
        actual_tasks: NDArray[np.int64] | None = None,
    ) -> None:
        """Add some windows.

        Args:
            plans: For each window its plans, best first, [k, T] with k ≥ 0.
            actual: True sequences [N, T].
            tasks: Tasks planned for [N], if the planner has such a notion.
            actual_tasks: True tasks [N].
        """
        horizon = actual.shape[1]
        padded = np.full((len(plans), self.top_k, horizon), _MISSING, dtype=np.int64)
        for row, plan in enumerate(plans):
            padded[row, : min(len(plan), self.top_k)] = plan[: self.top_k]
        first = padded[:, 0]
        missing = (first == _MISSING).all(axis=1)
        self.without_plan += int(missing.sum())
        bitwise_sum, _ = _bitwise(first[~missing], actual[~missing])
        parts = {
            "success_rate": _success(first, actual),
            "mean_accuracy": _accuracy(first, actual),
            "mean_iou": _iou(first, actual),
            "mean_iou_bitwise": (bitwise_sum, len(actual)),
            f"top_{self.top_k}_success_rate": _top_k(padded, actual),
        }
        if tasks is not None and actual_tasks is not None:
            parts["task_accuracy"] = (float((tasks == actual_tasks).sum()), len(actual_tasks))
        for name, (total, count) in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + total
            self.counts[name] = self.counts.get(name, 0.0) + count
        right = (first == actual).sum(axis=0).astype(np.float64)
        self.positions = right if self.positions is None else self.positions + right

    def percents(self) -> dict[str, Any]:
        """Every metric in per cent; `position_accuracy` is a list of T."""
        values: dict[str, Any] = {
            name: _percent(total, self.counts[name]) for name, total in self.sums.items()
        }
        if self.positions is not None:
            values["position_accuracy"] = (
                100 * self.positions / self.counts["success_rate"]
            ).tolist()
        return values


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
