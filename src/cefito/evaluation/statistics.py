"""How sure a score is: intervals over seeds and over videos, and paired differences over videos.

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
"""Confidence level of intervals, unless another is asked for."""
DRAWS = 2000
"""Draws of the bootstrap over videos, unless another number is asked for."""
_AT_ONCE = 1 << 22  # videos drawn at a time, so that memory does not grow with their number


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its confidence interval, mean ± half-width.

    Attributes:
        mean: Mean of the values.
        half_width: Half the width of the interval; None for a single value, which says nothing of
            its spread.
        values: One value a seed.
        level: Confidence level, 0.9 for 90 %.
    """

    mean: float
    half_width: float | None
    values: tuple[float, ...]
    level: float


@dataclass(frozen=True)
class Difference:
    """The difference of two methods' success rates, in points of a per cent.

    Attributes:
        mean: Rate of the first less rate of the second, each over all windows and all its seeds.
        low: Lower end of the confidence interval of the bootstrap over videos.
        high: Upper end.
        level: Confidence level of both intervals.
        seeds: Interval over the differences of seeds paired by their order; None where the methods
            have not equally many.
    """

    mean: float
    low: float
    high: float
    level: float
    seeds: Interval | None


def seed_interval(values: Sequence[float], level: float = 0.9) -> Interval:
    """Confidence interval of a mean over seeds, by Student's t.

    Its half-width is t((1 + level) / 2; n - 1) · s / √n. It covers the chance of training alone, on
    these test windows; not that of having drawn these videos.

    Args:
        values: One value a seed.
        level: Confidence level.

    Raises:
        ValueError: No value, one that is not finite, or a level not between 0 and 1.
    """
    numbers = _numbers(values)
    _check_level(level)
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
    """What the tables of the unified protocol (ViterbiPlanNet, arXiv 2603.04265) print after ±.

    It is for comparison with them. As many values as there are seeds are drawn from them with
    replacement and averaged, `draws` times. The result is the distance of the 5th and the 95th
    percentile of these means: the *full* width of a 90 % interval, not half of it. With few seeds a
    bootstrap is too narrow: for five, its interval is about z(0.95) √(4/5) / t(0.95; 4) = 0.69
    times as wide as that of `seed_interval`.

    Args:
        values: One value a seed, at least two.
        seed: Seed of the draws.
        draws: Number of means.

    Raises:
        ValueError: Fewer than two values, one that is not finite, or no draws.
    """
    numbers = _numbers(values)
    if len(numbers) < 2:
        raise ValueError("one value has no spread; expected the values of two seeds or more")
    _check_draws(draws)
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
    """How much more often one method succeeds than another on the same windows.

    Windows of one video overlap, and are not independent. So the bootstrap draws videos with
    replacement, as many as there are; all windows of a video come along, for both methods. A draw's
    difference is the sum of the differences of its windows over their number (a ratio of sums); the
    interval is that of the percentiles (1 ± level) / 2 of all draws. Successes are averaged
    over seeds first: the interval covers the choice of videos, not the chance of training, for
    which there is `seeds`.

    Args:
        first: Success of the first method for each seed and window, [S, N]; true or false, or
            numbers.
        second: That of the second, [S', N].
        video: The video of each window [N], as integers.
        level: Confidence level.
        draws: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: Shapes that do not fit, no seed or window, values that are not finite, no draws,
            or a level not between 0 and 1.
    """
    ours, theirs = _success(first, "first"), _success(second, "second")
    group = np.asarray(video)
    if group.shape != ours.shape[1:] or group.shape != theirs.shape[1:]:
        raise ValueError(
            f"first, second and video are of {ours.shape[1]}, {theirs.shape[1]} and "
            f"{list(group.shape)} windows; expected the same windows"
        )
    if group.dtype.kind not in "iu":
        raise ValueError(f"video holds values of type {group.dtype}; expected integers")
    _check_level(level)
    _check_draws(draws)
    _, group = np.unique(group, return_inverse=True)
    gain = np.bincount(group, weights=100 * (ours.mean(axis=0) - theirs.mean(axis=0)))
    size = np.bincount(group)
    low, high = _resampled(gain, size, level=level, draws=draws, seed=seed)
    seeds = None
    if len(ours) == len(theirs):
        seeds = seed_interval((100 * (ours - theirs).mean(axis=1)).tolist(), level)
    return Difference(
        mean=float(gain.sum() / size.sum()),
        low=low,
        high=high,
        level=level,
        seeds=seeds,
    )


def video_interval(
    sums: ArrayLike,
    counts: ArrayLike,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """How sure a ratio of sums over videos is, such as a success rate: the bootstrap over videos.

    Videos are drawn with replacement, as many as there are, and all windows of a video come along,
    as in `paired_difference`. It covers the choice of videos, not the chance of training.

    Args:
        sums: What is summed over the windows of each video, such as successes [V].
        counts: What the sum is divided by, such as windows [V].
        level: Confidence level.
        draws: Number of bootstrap draws.
        seed: Seed of the draws.

    Returns:
        Lower and upper end: the percentiles (1 ± level) / 2 of all draws.

    Raises:
        ValueError: Shapes that do not fit, no video, values that are not finite, counts that are
            not positive, no draws, or a level not between 0 and 1.
    """
    total, size = (np.asarray(values, dtype=np.float64) for values in (sums, counts))
    if total.ndim != 1 or total.shape != size.shape or not len(total):
        raise ValueError(
            f"sums {list(total.shape)} and counts {list(size.shape)}: expected one of each a "
            "video, at least one"
        )
    if not (np.isfinite(total).all() and np.isfinite(size).all() and (size > 0).all()):
        raise ValueError("sums and counts must be finite, and counts positive")
    _check_level(level)
    _check_draws(draws)
    return _resampled(total, size, level=level, draws=draws, seed=seed)


def _resampled(
    sums: NDArray[Any], counts: NDArray[Any], *, level: float, draws: int, seed: int
) -> tuple[float, float]:
    """Percentiles of the ratio of both sums [V] where videos are drawn with replacement."""
    generator, videos = np.random.default_rng(seed), len(sums)
    step = max(1, _AT_ONCE // videos)
    ratios = []
    for first in range(0, draws, step):
        drawn = generator.integers(videos, size=(min(step, draws - first), videos))
        ratios.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.percentile(np.concatenate(ratios), [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def _numbers(values: Sequence[float]) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(
            f"values have shape {list(numbers.shape)}; expected one value a seed, at least one"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"values {numbers.tolist()} are not all finite")
    return numbers


def _success(values: ArrayLike, name: str) -> NDArray[np.float64]:
    success = np.asarray(values)
    if success.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} holds values of type {success.dtype}; expected true or false, or numbers"
        )
    if success.ndim != 2 or not success.size:
        raise ValueError(
            f"{name} has shape {list(success.shape)}; expected [seeds, windows], not empty"
        )
    if not np.isfinite(success).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return success.astype(np.float64)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level {level}: expected a number between 0 and 1")


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise ValueError(f"{draws} draws: expected 1 or more")
