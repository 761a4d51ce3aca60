"""Uncertainty of scores: intervals over seeds and videos, and paired differences over videos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.9
"""Confidence level of all intervals."""
DRAWS = 2000
"""Number of draws of the bootstrap over videos."""
_SEED_DRAWS = 1000  # of the bootstrap over seeds
_AT_ONCE = 1 << 22  # videos drawn at a time, to bound memory


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 90 % interval, mean ± half-width."""

    mean: float
    half_width: float | None  # None for a single value, whose spread is unknown


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


def paired_difference(
    first: ArrayLike,  # success of each seed and window [S, N]
    second: ArrayLike,  # [S', N]
    video: ArrayLike,  # of each window [N]
) -> Difference:
    """Difference of two methods' success rates on the same windows.

    Windows of one video overlap and are not independent, so the bootstrap draws whole videos, for
    both methods. Successes are averaged over seeds first: the interval covers the choice of videos,
    `seeds` the randomness of training.
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
    low, high = video_interval(gain, size)
    seeds = None
    if len(ours) == len(theirs):
        seeds = seed_interval((100 * (ours - theirs).mean(axis=1)).tolist())
    return Difference(mean=float(gain.sum() / size.sum()), low=low, high=high, seeds=seeds)


def video_interval(sums: ArrayLike, counts: ArrayLike) -> tuple[float, float]:
    """Bootstrap interval of Σ sums / Σ counts over videos [V], which are drawn with repetition.

    Its ends are the percentiles (1 ± level) / 2 of the ratios.
    """
    total, size = (np.asarray(values, dtype=np.float64) for values in (sums, counts))
    generator, videos = np.random.default_rng(0), len(total)
    step = max(1, _AT_ONCE // videos)
    ratios = []
    for first in range(0, DRAWS, step):
        drawn = generator.integers(videos, size=(min(step, DRAWS - first), videos))
        counted = size[drawn].sum(axis=1)
        some = counted > 0  # draws of videos without what is counted have no ratio
        ratios.append(total[drawn].sum(axis=1)[some] / counted[some])
    low, high = np.percentile(np.concatenate(ratios), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def _numbers(values: Sequence[float], least: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < least or not np.isfinite(numbers).all():
        raise ValueError(f"values {numbers.tolist()}: expected finite numbers, at least {least}")
    return numbers
