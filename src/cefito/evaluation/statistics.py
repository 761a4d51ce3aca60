"""Uncertainty of scores: intervals over seeds and videos, and paired differences over videos.

Also the interval that published tables print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DRAWS",
    "LEVEL",
    "Difference",
    "Interval",
    "bootstrap_width",
    "paired_difference",
    "seed_interval",
    "video_interval",
]

LEVEL = 0.9
"""Default confidence level of intervals."""
DRAWS = 2000
"""Default number of draws of the bootstrap over videos."""
_AT_ONCE = 1 << 22  # videos drawn at a time, to bound memory


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its confidence interval, mean ± half-width.

    Attributes:
        mean: Mean of the values.
        half_width: Half the width of the interval; None for a single value, whose spread is
            unknown.
        values: One value a seed.
        level: Confidence level, 0.9 for 90 %.
    """

    mean: float
    half_width: float | None
    values: tuple[float, ...]
    level: float


@dataclass(frozen=True)
class Difference:
    """The difference of two methods' success rates, percentage points.

    Attributes:
        mean: Rate of the first less rate of the second, each over all windows and all its seeds.
        low: Lower end of the confidence interval of the bootstrap over videos.
        high: Upper end.
        level: Confidence level of both intervals.
        seeds: Interval over the differences of seeds paired by their order; None if the methods
            have different numbers of seeds.
    """

    mean: float
    low: float
    high: float
    level: float
    seeds: Interval | None


def seed_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Confidence interval of a mean over seeds, by Student's t.

    Its half-width is t((1 + level) / 2; n - 1) · s / √n. It covers the randomness of training on
    these test windows, not the choice of videos.

    Args:
        values: One value a seed.
        level: Confidence level.

    Raises:
        ValueError: No value, or one that is not finite.
    """
    numbers = _numbers(values, 1)
    half_width, count = None, len(numbers)
    if count > 1:
        # quantile of Student's t; lighter than scipy.stats
        from scipy.special import stdtrit

        half_width = float(stdtrit(count - 1, (1 + level) / 2) * numbers.std(ddof=1) / count**0.5)
    return Interval(
        mean=float(numbers.mean()),
        half_width=half_width,
        values=tuple(numbers.tolist()),
        level=level,
    )


def bootstrap_width(values: Sequence[float], *, seed: int = 0, draws: int = 1000) -> float:
    """The number after ± in tables of the unified protocol (ViterbiPlanNet, arXiv 2603.04265).

    It is for comparison with these tables. As many values as there are seeds are drawn with
    replacement and averaged, `draws` times. The result is the distance between the 5th and the 95th
    percentile of these means: the *full* width of a 90 % interval, not half of it. With few seeds a
    bootstrap is too narrow: for five, its interval is about z(0.95) √(4/5) / t(0.95; 4) = 0.69
    times as wide as that of `seed_interval`.

    Args:
        values: One value a seed, at least two.
        seed: Seed of the draws.
        draws: Number of means.

    Raises:
        ValueError: Fewer than two values, or one that is not finite.
    """
    numbers = _numbers(values, 2)
    drawn = np.random.default_rng(seed).integers(len(numbers), size=(draws, len(numbers)))
    low, high = np.percentile(numbers[drawn].mean(axis=1), [5, 95])
    return float(high - low)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    video: ArrayLike,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """Difference of two methods' success rates on the same windows.

    Windows of one video overlap and are not independent, so the bootstrap draws videos with
    replacement, as many as there are, each with all its windows for both methods. A draw's
    difference is the sum of the differences of its windows over their number (a ratio of sums); the
    interval is between the percentiles (1 ± level) / 2 of all draws. Successes are averaged over
    seeds first: the interval covers the choice of videos; `seeds` covers the randomness of
    training.

    Args:
        first: Success of the first method for each seed and window [S, N].
        second: Success of the second method [S', N].
        video: The video of each window [N], as integers.
        level: Confidence level.
        draws: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: No window, or different numbers of windows.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    windows = np.shape(video)
    if not (ours.size and theirs.size and ours.shape[1:] == theirs.shape[1:] == windows):
        raise ValueError(
            f"first {list(ours.shape)}, second {list(theirs.shape)} and video {list(windows)}: "
            "expected [seeds, windows] twice and [windows], of the same windows"
        )
    _, group = np.unique(video, return_inverse=True)
    gain = np.bincount(group, weights=100 * (ours.mean(axis=0) - theirs.mean(axis=0)))
    size = np.bincount(group)
    low, high = _resampled(gain, size, level=level, draws=draws, seed=seed)
    seeds = None
    if len(ours) == len(theirs):
        seeds = seed_interval((100 * (ours - theirs).mean(axis=1)).tolist(), level)
    return Difference(
        mean=float(gain.sum() / size.sum()), low=low, high=high, level=level, seeds=seeds
    )


def video_interval(
    sums: ArrayLike, counts: ArrayLike, *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval over videos of a ratio of sums, such as a success rate.

    Videos are drawn with replacement, as many as there are, each with all its windows, as in
    `paired_difference`. It covers the choice of videos, not the randomness of training.

    Args:
        sums: Numerator's sum over the windows of each video, such as successes [V].
        counts: Denominator's, such as windows [V]; positive.
        level: Confidence level.
        draws: Number of bootstrap draws.
        seed: Seed of the draws.

    Returns:
        Lower and upper end: the percentiles (1 ± level) / 2 of all draws.
    """
    total, size = (np.asarray(values, dtype=np.float64) for values in (sums, counts))
    return _resampled(total, size, level=level, draws=draws, seed=seed)


def _resampled(
    sums: NDArray[Any], counts: NDArray[Any], *, level: float, draws: int, seed: int
) -> tuple[float, float]:
    """Percentiles of the ratio of both sums [V] over bootstrap draws of videos."""
    generator, videos = np.random.default_rng(seed), len(sums)
    step = max(1, _AT_ONCE // videos)
    ratios = []
    for first in range(0, draws, step):
        drawn = generator.integers(videos, size=(min(step, draws - first), videos))
        ratios.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.percentile(np.concatenate(ratios), [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def _numbers(values: Sequence[float], least: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < least or not np.isfinite(numbers).all():
        raise ValueError(f"values {numbers.tolist()}: expected finite numbers, at least {least}")
    return numbers
