"""How far the probabilities of plans can be trusted: calibration, and answering only when sure.

All look at each window's best plan: its probability, and whether its whole sequence is right. A
window without a plan has probability 0 and is wrong. Windows of equal probability cannot be told
apart, so that each counts as right as they are on average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.evaluation.record import FileRecord
from cefito.search.problem import Plans

__all__ = [
    "BINS",
    "POINTS",
    "Answered",
    "Calibration",
    "Reliability",
    "RiskCoverage",
    "answered",
    "best_probabilities",
    "calibration",
    "calibration_heads",
    "searched_mass",
]

BINS = 15
"""Bins of the expected calibration error, each of as many windows."""
POINTS = 21
"""Points of the curve of success against coverage, from 0 to 100 %."""
_HEADS = {"expected_calibration_error": "ECE", "success_at_half_coverage": "SR at 50 %"}


def calibration_heads() -> dict[str, str]:
    """Heads of the columns of tables, by the names of the figures."""
    return dict(_HEADS)


class Reliability(FileRecord):
    """Windows by ascending probability, in bins of as many windows.

    Attributes:
        windows: Windows of each bin.
        probability: Their mean probability, per cent.
        success: Their success rate, per cent.
    """

    windows: list[int]
    probability: list[float]
    success: list[float]


class RiskCoverage(FileRecord):
    """What answering only the surest windows would mean.

    Attributes:
        coverage: Share of windows answered, per cent; at 0 it is the single surest one.
        success: Success rate among them, per cent.
        min_probability: Probability of the least sure of them.
    """

    coverage: list[float]
    success: list[float]
    min_probability: list[float]


class Calibration(FileRecord):
    """How far probabilities of best plans can be trusted.

    Attributes:
        expected_calibration_error: Mean over bins, weighted by their windows, of the distance of
            success rate and mean probability, points of a per cent (Naeini et al., 2015, with bins
            of equal counts).
        success_at_half_coverage: Success rate among the surer half of the windows, per cent.
        risk_coverage_area: Area under the curve of the share of wrong plans against coverage
            (Geifman et al., 2019): mean over n of the wrong among the n surest, per cent.
        mean_probability: Per cent; above the success rate where a planner is too sure of itself.
        searched_mass: Mean share of all probability that was compared, per cent; None where it is
            not known of every window.
        reliability: The bins.
        risk_coverage: Points of the curve.
    """

    expected_calibration_error: float
    success_at_half_coverage: float
    risk_coverage_area: float
    mean_probability: float
    searched_mass: float | None
    reliability: Reliability
    risk_coverage: RiskCoverage


class Answered(FileRecord):
    """What answering only where the best plan is probable enough means.

    Attributes:
        min_probability: Least probability of an answer.
        windows: Windows answered.
        coverage: Their share, per cent.
        success_rate: Success rate among them, per cent; None where there is none.
    """

    min_probability: float
    windows: int
    coverage: float
    success_rate: float | None


def best_probabilities(plans: Sequence[Plans]) -> NDArray[np.float64] | None:
    """The probability of each window's best plan [N], 0 where there is no plan.

    None where plans have no probabilities.
    """
    if not plans or any(plan.probabilities is None for plan in plans):
        return None
    return np.array(
        [
            plan.probabilities[0] if plan.probabilities is not None and len(plan) else 0.0
            for plan in plans
        ],
        dtype=np.float64,
    )


def searched_mass(plans: Sequence[Plans]) -> float | None:
    """Mean share of all probability that was compared; None where it is not known of all."""
    known = [plan.searched_mass for plan in plans if plan.searched_mass is not None]
    return float(np.mean(known)) if known and len(known) == len(plans) else None


def calibration(
    probabilities: ArrayLike, right: ArrayLike, *, mass: float | None = None
) -> Calibration:
    """How far probabilities can be trusted.

    Args:
        probabilities: Of each window's best plan [N].
        right: Whether it is right [N].
        mass: Mean share of all probability that was compared.

    Raises:
        ValueError: Not of one length, none at all, or probabilities beyond 0 and 1.
    """
    values, success = _checked(probabilities, right)
    order = np.argsort(values, kind="stable")
    values, success = values[order], success[order]
    count = len(values)
    bins = [part for part in np.array_split(np.arange(count), BINS) if len(part)]
    windows = [len(part) for part in bins]
    means = [float(100 * values[part].mean()) for part in bins]
    rates = [float(100 * success[part].mean()) for part in bins]
    among = 100 * success[::-1].cumsum() / np.arange(1, count + 1)  # of the n surest
    shares = np.linspace(0, 1, POINTS)
    surest = np.array([_surest(share, count) for share in shares])
    return Calibration(
        expected_calibration_error=float(
            np.average(np.abs(np.subtract(means, rates)), weights=windows)
        ),
        success_at_half_coverage=float(among[_surest(0.5, count) - 1]),
        risk_coverage_area=float((100 - among).mean()),
        mean_probability=float(100 * values.mean()),
        searched_mass=None if mass is None else 100 * mass,
        reliability=Reliability(windows=windows, probability=means, success=rates),
        risk_coverage=RiskCoverage(
            coverage=(100 * shares).round(6).tolist(),
            success=among[surest - 1].tolist(),
            min_probability=values[::-1][surest - 1].tolist(),
        ),
    )


def answered(probabilities: ArrayLike, right: ArrayLike, *, min_probability: float) -> Answered:
    """What answering only where the best plan is probable enough means.

    Args:
        probabilities: Of each window's best plan [N].
        right: Whether it is right [N].
        min_probability: Least probability of an answer.

    Raises:
        ValueError: As in `calibration`.
    """
    values, success = _checked(probabilities, right)
    kept = values >= min_probability
    return Answered(
        min_probability=min_probability,
        windows=int(kept.sum()),
        coverage=float(100 * kept.mean()),
        success_rate=float(100 * success[kept].mean()) if kept.any() else None,
    )


def _surest(share: float, count: int) -> int:
    """How many windows a share of them is: rounded up, at least one."""
    return max(1, int(np.ceil(share * count - 1e-9)))


def _checked(
    probabilities: ArrayLike, right: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as numbers, with success averaged over windows of equal probability."""
    values, success = (np.asarray(part, dtype=np.float64) for part in (probabilities, right))
    if values.ndim != 1 or values.shape != success.shape or not len(values):
        raise ValueError(
            f"probabilities {list(values.shape)} and right {list(success.shape)}: expected as "
            "many, not empty"
        )
    if not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise ValueError("probabilities must lie between 0 and 1")
    _, group = np.unique(values, return_inverse=True)
    return values.clip(max=1), (np.bincount(group, success) / np.bincount(group))[group]
