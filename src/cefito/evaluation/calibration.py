"""Calibration of best plans' probabilities, and selective answering.

A window without a plan has probability 0; windows of equal probability share their mean success.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.evaluation.records import Answered, Calibration, Reliability, RiskCoverage
from cefito.search.problem import Plans

__all__ = ["BINS", "POINTS", "answered", "best_probabilities", "calibration", "searched_mass"]

BINS = 15
"""Bins of the expected calibration error, with equal counts."""
POINTS = 21
"""Points of the curve of success against coverage, from 0 to 100 %."""


def best_probabilities(plans: Sequence[Plans]) -> NDArray[np.float64] | None:
    """The probability of each window's best plan [N]; None if plans have no probabilities."""
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
    """Mean share of the probability mass that was searched; None if it is not known for all."""
    known = [plan.searched_mass for plan in plans if plan.searched_mass is not None]
    return float(np.mean(known)) if known and len(known) == len(plans) else None


def calibration(
    probabilities: ArrayLike, right: ArrayLike, *, mass: float | None = None
) -> Calibration:
    """Calibration of best plans by probability and correctness [N]; `mass` is that searched."""
    values, success = _tied(probabilities, right)
    order = np.argsort(values, kind="stable")
    values, success = values[order], success[order]
    count = len(values)
    bins = [part for part in np.array_split(np.arange(count), BINS) if len(part)]
    windows = [len(part) for part in bins]
    means = [float(100 * values[part].mean()) for part in bins]
    rates = [float(100 * success[part].mean()) for part in bins]
    among = 100 * success[::-1].cumsum() / np.arange(1, count + 1)  # rate among the n surest [N]
    shares = np.linspace(0, 1, POINTS)
    surest = np.array([_surest(share, count) for share in shares])
    return Calibration(
        # Σ_b windows_b · |mean_b − rate_b| / N
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
    """Coverage and success, by probability and correctness of best plans [N], above a minimum."""
    values, success = _tied(probabilities, right)
    kept = values >= min_probability
    return Answered(
        min_probability=min_probability,
        windows=int(kept.sum()),
        coverage=float(100 * kept.mean()),
        success_rate=float(100 * success[kept].mean()) if kept.any() else None,
    )


def _surest(share: float, count: int) -> int:
    """Number of windows in a share of them: rounded up, at least one."""
    return max(1, int(np.ceil(share * count - 1e-9)))


def _tied(
    probabilities: ArrayLike, right: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as numbers [N], with success averaged over windows of equal probability."""
    values, success = (np.asarray(part, dtype=np.float64) for part in (probabilities, right))
    _, group = np.unique(values, return_inverse=True)
    return values.clip(max=1), (np.bincount(group, success) / np.bincount(group))[group]
