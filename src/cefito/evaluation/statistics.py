"""Uncertainty of scores: intervals over seeds and videos, paired differences, and calibration.

Of calibration, a window without a plan has probability 0, and windows of equal probability share
their mean success.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.evaluation.records import Calibration, Reliability, RiskCoverage
from cefito.search.problem import Plans

LEVEL = 0.9
"""Confidence level of all intervals."""
DRAWS = 2000
"""Number of draws of the bootstrap over videos."""
_SEED_DRAWS = 1000  # of the bootstrap over seeds
_AT_ONCE = 1 << 22  # videos, or numbers, drawn at a time, to bound memory
_BINS = 15  # of the expected calibration error, with equal counts
_POINTS = 21  # of the curve of success against coverage, from 0 to 100 %
_DRAWN = 1000  # calibration errors by chance


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 90 % interval, mean ± half-width."""

    mean: float
    half_width: float | None  # None for a single value, whose spread is unknown


@dataclass(frozen=True, eq=False)
class Resampled:
    """A score, the mean over seeds, and draws of it over videos."""

    mean: float
    draws: NDArray[np.float64]  # [DRAWS]; NaN where nothing is counted

    def __sub__(self, other: Self) -> Self:
        """Return how much it exceeds another one on the same drawn videos."""
        return type(self)(self.mean - other.mean, self.draws - other.draws)

    def rounded(self) -> dict[str, float | None]:
        """Return it and the ends of its interval for JSON; no ends where nothing is counted."""
        ends = (None, None) if np.isnan(self.draws).all() else draws_interval(self.draws)
        low, high = (None if end is None else round(end, 2) for end in ends)
        return {"mean": round(self.mean, 2), "low": low, "high": high}


@dataclass(frozen=True)
class Difference:
    """The difference of two methods' success rates, percentage points."""

    mean: float  # of the first less the second, each over all windows and all its seeds
    low: float  # ends of the interval of the bootstrap over videos
    high: float
    seeds: Interval | None  # over differences of paired seeds; None for different numbers of seeds


def seed_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of a mean over seeds: half-width t((1 + level) / 2; n - 1) · s / √n.

    It covers the randomness of training on these test windows, not the choice of videos.
    """
    numbers = _numbers(values, 1)
    half_width, count = None, len(numbers)
    if count > 1:
        # quantile of Student's t; lighter than scipy.stats
        from scipy.special import stdtrit

        half_width = float(stdtrit(count - 1, (1 + LEVEL) / 2) * numbers.std(ddof=1) / count**0.5)
    return Interval(mean=float(numbers.mean()), half_width=half_width)


def bootstrap_width(values: Sequence[float]) -> float:
    """The number after ± in tables of the unified protocol (ViterbiPlanNet, arXiv 2603.04265).

    The distance between the 5th and 95th percentile of bootstrap means over seeds: the *full* width
    of a 90 % interval. For five seeds it is too narrow, about z(0.95) √(4/5) / t(0.95; 4) = 0.69
    times as wide as the interval of `seed_interval`.
    """
    numbers = _numbers(values, 2)
    drawn = np.random.default_rng(0).integers(len(numbers), size=(_SEED_DRAWS, len(numbers)))
    low, high = np.percentile(numbers[drawn].mean(axis=1), [5, 95])
    return float(high - low)


def paired_difference(first: ArrayLike, second: ArrayLike, video: ArrayLike) -> Difference:
    """Difference of two methods' success rates on the same windows.

    Windows of one video overlap and are not independent, so the bootstrap draws whole videos, for
    both methods. Successes are averaged over seeds first: the interval covers the choice of videos,
    `seeds` the randomness of training.

    Args:
        first: Success of the first method, of each seed and window [S, N].
        second: That of the second [S', N].
        video: Video of each window [N].
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    windows = np.shape(video)
    if not (ours.size and theirs.size and ours.shape[1:] == theirs.shape[1:] == windows):
        raise ValueError(
            f"first {list(ours.shape)}, second {list(theirs.shape)} and video {list(windows)}: "
            "expected [seeds, windows] twice and [windows], of the same windows"
        )
    left, right = (
        resampled_ratios(
            [{"": np.stack([100 * seed, np.ones(windows)], axis=1)} for seed in rows], video
        )
        for rows in (ours, theirs)
    )
    gain = left[""] - right[""]
    low, high = draws_interval(gain.draws)
    seeds = None
    if len(ours) == len(theirs):
        seeds = seed_interval((100 * (ours - theirs).mean(axis=1)).tolist())
    return Difference(mean=gain.mean, low=low, high=high, seeds=seeds)


def resampled_ratios(
    seeds: Sequence[Mapping[str, ArrayLike]], units: ArrayLike
) -> dict[str, Resampled]:
    """Resample videos for all scores of a method; those of two methods are paired.

    A draw has every seed of each drawn video, and is the mean of the seeds' scores on these.

    Args:
        seeds: Of each seed, sum and divisor [V, 2] of each score, by name.
        units: Video of each row, or its group, which is then drawn whole [V].

    Returns:
        The scores that all seeds have.
    """
    names = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    if not names:
        return {}
    parts = np.array([[seed[name] for name in names] for seed in seeds], dtype=np.float64)
    _, unit = np.unique(units, return_inverse=True)
    totals = np.zeros((unit.max() + 1, *parts.shape[:2], 2))  # of each unit, seed and score
    np.add.at(totals, unit, np.moveaxis(parts, 2, 0))
    return resampled(
        totals, lambda sums: dict(zip(names, _ratios(sums).mean(axis=1).T, strict=True))
    )


def video_interval(sums: ArrayLike, counts: ArrayLike) -> tuple[float, float]:
    """Bootstrap interval of Σ sums / Σ counts over videos [V], which are drawn with repetition."""
    scores = resampled(np.stack([sums, counts], axis=-1), lambda drawn: {"": _ratios(drawn)})
    return draws_interval(scores[""].draws)


def resampled(
    sums: ArrayLike, scores: Callable[[NDArray[np.float64]], Mapping[str, NDArray[np.float64]]]
) -> dict[str, Resampled]:
    """Resample videos, with repetition, for scores of sums over them.

    Draws of the same number of videos are the same.

    Args:
        sums: What is summed, of each video [V, …].
        scores: Returns scores by name [D] of D sums [D, …]; NaN where nothing is counted.
    """
    of_video = np.asarray(sums, dtype=np.float64)
    whole = scores(of_video.sum(axis=0, keepdims=True))
    generator, videos = np.random.default_rng(0), len(of_video)
    step, drawn_scores = max(1, _AT_ONCE // max(videos, of_video[0].size)), []
    for first in range(0, DRAWS, step):
        rows = min(step, DRAWS - first)
        drawn = generator.integers(videos, size=(rows, videos)) + videos * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        drawn_scores.append(scores(np.tensordot(times, of_video, 1)))
    return {
        name: Resampled(
            float(np.nan_to_num(mean[0])), np.concatenate([draw[name] for draw in drawn_scores])
        )
        for name, mean in whole.items()
    }


def _ratios(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums by their divisors [..., 2]; NaN where nothing is counted."""
    sums, counts = np.moveaxis(parts, -1, 0)
    ratios: NDArray[np.float64] = sums / np.where(counts > 0, counts, np.nan)
    return ratios


def draws_interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentiles (1 ± level) / 2 of draws but those that are NaN."""
    low, high = np.nanpercentile(draws, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def _numbers(values: Sequence[float], least: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < least or not np.isfinite(numbers).all():
        raise ValueError(f"values {numbers.tolist()}: expected finite numbers, at least {least}")
    return numbers


def best_probabilities(plans: Sequence[Plans]) -> NDArray[np.float64] | None:
    """The probability of each window's best plan [N]; None if plans have no probabilities."""
    listed = [plan.probabilities for plan in plans if plan.probabilities is not None]
    if not plans or len(listed) < len(plans):
        return None
    return np.array([values[0] if len(values) else 0.0 for values in listed], dtype=np.float64)


def searched_mass(plans: Sequence[Plans]) -> float | None:
    """Mean share of the probability mass that was searched; None if it is not known for all."""
    shares = [plan.searched_mass for plan in plans if plan.searched_mass is not None]
    return float(np.mean(shares)) if shares and len(shares) == len(plans) else None


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
    bins = [members for members in np.array_split(np.arange(count), _BINS) if len(members)]
    windows = [len(members) for members in bins]
    means = [float(100 * values[members].mean()) for members in bins]
    rates = [float(100 * success[members].mean()) for members in bins]
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
    values, success = (np.asarray(numbers, dtype=np.float64) for numbers in (probabilities, right))
    _, group = np.unique(values, return_inverse=True)
    return values.clip(max=1), (np.bincount(group, success) / np.bincount(group))[group]
