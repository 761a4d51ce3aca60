"""Calibration of best plans' probabilities, and success if only the surest are answered.

A window without a plan has probability 0; windows of equal probability share their mean success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.evaluation.records import Calibration, Reliability, RiskCoverage
from cefito.search.problem import Plans

_BINS = 15  # of the expected calibration error, with equal counts
_POINTS = 21  # of the curve of success against coverage, from 0 to 100 %
_DRAWN = 1000  # calibration errors by chance


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
    probabilities: ArrayLike,
    right: ArrayLike,
    *,
    videos: ArrayLike | None = None,
    mass: float | None = None,
) -> Calibration:
    """Return the calibration of probabilities by correctness, both [N].

    Args:
        probabilities: Probabilities of N windows.
        right: Whether they are right.
        videos: Video of each window [N]; None if each has its own.
        mass: Share of the probability mass that was searched; None if unknown.
    """
    values, success = _tied(probabilities, right)
    actual, count = np.asarray(right, dtype=np.float64), len(values)
    video = np.zeros(count) if videos is None else np.asarray(videos)
    order = np.lexsort((actual, video, values))
    values, success, actual = values[order], success[order], actual[order]
    video = np.arange(count) if videos is None else video[order]
    bins = [part for part in np.array_split(np.arange(count), _BINS) if len(part)]
    windows = [len(part) for part in bins]
    means = [float(100 * values[part].mean()) for part in bins]
    rates = [float(100 * success[part].mean()) for part in bins]
    among = 100 * success[::-1].cumsum() / np.arange(1, count + 1)  # rate among the n surest [N]
    shares = np.linspace(0, 1, _POINTS)
    surest = np.array([_surest(share, count) for share in shares])
    error = float(np.average(np.abs(np.subtract(means, rates)), weights=windows))
    by_chance = _errors_by_chance(actual - values, video, bins)
    return Calibration(
        # Σ_b windows_b · |mean_b − rate_b| / N
        expected_calibration_error=error,
        chance_calibration_error=float(by_chance.mean()),
        calibration_p_value=float((by_chance >= error - 1e-9).mean()),
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


def _errors_by_chance(
    deviations: NDArray[np.float64],  # of outcomes from probabilities [N]
    video: NDArray[Any],  # of each window [N]
    bins: Sequence[NDArray[np.int64]],  # rows of each of B bins
) -> NDArray[np.float64]:
    """Return draws of the calibration error of right probabilities, per cent.

    A wild bootstrap (Cameron, Gelbach and Miller, 2008): right probabilities deviate in both
    directions alike, and windows of a video deviate together.
    """
    _, of = np.unique(video, return_inverse=True)
    videos = int(of.max()) + 1
    sums = np.array([np.bincount(of[rows], deviations[rows], videos) for rows in bins])  # [B, V]
    generator = np.random.default_rng(0)
    drawn = [
        # Σ_b |Σ_v ± sums_bv| / N
        np.abs((sums * generator.choice([-1.0, 1.0], videos)).sum(axis=1)).sum()
        for _ in range(_DRAWN)
    ]
    return 100 * np.array(drawn) / len(deviations)


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
