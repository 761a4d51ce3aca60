"""Conformal quantiles over videos: their guarantee on synthetic data, and scores of windows."""

from __future__ import annotations

import numpy as np
import pytest
from crepes import ConformalRegressor

from cefito.data import cut_windows
from cefito.evaluation.conformal import WindowScores, quantiles, sampled


def test_single_windows_are_split_conformal_prediction():
    """The ⌈(n + 1) level⌉-th of n scores (Angelopoulos and Bates, arXiv 2107.07511, Sec. 1)."""
    rng = np.random.default_rng(0)
    for count in (1, 9, 19, 30):
        scores = rng.normal(size=count)
        for level in (0.5, 0.8, 0.9, 0.95, 0.99):
            place = int(np.ceil((count + 1) * level - 1e-9))
            expected = np.sort(scores)[place - 1] if place <= count else np.inf
            assert quantiles(scores, np.arange(count), [level])[0] == expected


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_folds_without_windows_of_a_condition(empty):
    """Such a fold has no sums over plans, and adds nothing to those of others."""
    parts = [
        WindowScores(videos=np.arange(2), plans=np.ones(2), next_step=np.full(2, n), next_two=None)
        for n in (1.0, 2.0)
    ]
    none = WindowScores(
        videos=np.zeros(0, np.int64), plans=np.zeros(0), next_step=None, next_two=None
    )
    parts.insert(empty, none)
    joined = WindowScores.concatenate(parts)
    assert joined.next_step.tolist() == [1, 1, 2, 2]
    assert (len(joined.videos), len(joined.plans), joined.next_two) == (4, 4, None)


def test_quantiles_are_p_values_turned_around():
    """s is in the set at 1 − α iff the weight of calibration scores ≥ s, and of ∞, exceeds α."""
    rng = np.random.default_rng(1)
    videos = rng.integers(12, size=60)
    scores = rng.integers(20, size=60).astype(float)
    names, counts = np.unique(videos, return_counts=True)
    weight = 1 / counts[np.searchsorted(names, videos)] / (len(names) + 1)
    for level in (0.5, 0.73, 0.9):
        (threshold,) = quantiles(scores, videos, [level])
        for score in np.arange(20.0):
            p_value = weight[scores >= score].sum() + 1 / (len(names) + 1)
            assert (score <= threshold) == (p_value > 1 - level + 1e-9)


def test_quantiles_are_those_of_another_library():
    """Of one window a video, as crepes has them; levels between the places of two scores."""
    rng = np.random.default_rng(3)
    for count in (9, 40, 200):
        scores, regressor = rng.exponential(size=count), ConformalRegressor()
        regressor.fit(residuals=scores)
        for place in range(1, count + 1, 3):
            level = (place - 0.5) / (count + 1)
            (_, upper) = regressor.predict_int(y_hat=np.zeros(1), confidence=level)[0]
            assert quantiles(scores, np.arange(count), [level])[0] == upper


def test_quantiles_rise_with_the_level_and_end_at_infinity():
    scores, videos = np.array([3.0, 1.0, 2.0, np.inf]), np.array([0, 0, 1, 2])
    # weights 1/8, 1/8 of video 0, 1/4 of 1, 1/4 of 2: cumulative 1/8, 3/8, 1/2, 3/4
    levels = [0.1, 0.125, 0.2, 0.375, 0.5, 0.6, 0.75, 0.76]
    expected = [1, 1, 2, 2, 3, np.inf, np.inf, np.inf]
    np.testing.assert_array_equal(quantiles(scores, videos, levels), expected)
    assert quantiles([], [], [0.5])[0] == np.inf


def test_quantiles_are_those_of_numpy():
    """An independent check: the weighted inverse of the distribution, with a new video at ∞."""
    rng = np.random.default_rng(2)
    for videos in (3, 9, 40):
        place = np.sort(rng.integers(videos, size=5 * videos))
        names, index, counts = np.unique(place, return_inverse=True, return_counts=True)
        scores = rng.exponential(size=len(place))
        weights = np.append(1 / counts[index], 1.0)  # each video 1, and the new one
        levels = rng.uniform(0.3, 0.99, size=20)
        expected = np.quantile(
            np.append(scores, 1e9), levels, weights=weights, method="inverted_cdf"
        )
        found = quantiles(scores, place, levels)
        np.testing.assert_array_equal(np.where(np.isinf(found), 1e9, found), expected)
        assert (expected == 1e9).sum() == (levels > len(names) / (len(names) + 1)).sum()


def draw(rng, videos, spread):
    """Scores of windows of videos: the level of a video, and the scatter within it."""
    sizes = rng.choice([1, 2, 30], size=videos)
    means = rng.normal(scale=spread, size=videos) + 0.5 * (sizes == 30)  # long videos are harder
    place = np.repeat(np.arange(videos), sizes)
    return means[place] + rng.normal(size=len(place)), place


@pytest.mark.parametrize("videos", [9, 40])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_coverage_of_a_random_window_of_a_new_video(videos, spread):
    """Within binomial bounds of the guarantee level ≤ coverage ≤ level + 2 / (V + 1)."""
    levels = np.array([0.5, 0.8, 0.9])
    rng, trials, covered = np.random.default_rng(videos), 4000, np.zeros(3)
    for _ in range(trials):
        scores, place = draw(rng, videos + 1, spread)
        new = place == videos
        thresholds = quantiles(scores[~new], place[~new], levels)
        covered += rng.choice(scores[new]) <= np.asarray(thresholds)
    error = 4 * np.sqrt(levels * (1 - levels) / trials)
    assert (levels - error <= covered / trials).all()
    assert (covered / trials <= levels + 2 / (videos + 1) + error).all()


def test_windows_as_units_would_cover_too_little():
    """Few videos with many windows: windows as units pretend to a certainty that is not there."""
    rng, trials, level = np.random.default_rng(3), 3000, 0.9
    covered = {"videos": 0, "windows": 0}
    for _ in range(trials):
        means = rng.normal(scale=3, size=10)
        scores = means[:, None] + rng.normal(size=(10, 30))
        place = np.repeat(np.arange(9), 30)
        new = rng.choice(scores[9])
        calibration = scores[:9].ravel()
        covered["videos"] += new <= quantiles(calibration, place, [level])[0]
        covered["windows"] += new <= quantiles(calibration, np.arange(270), [level])[0]
    error = 4 * np.sqrt(level * (1 - level) / trials)
    assert covered["videos"] / trials >= level - error
    assert covered["windows"] / trials < level - error


def test_windows_of_each_video_are_sampled(world):
    windows = cut_windows(world, horizon=3, shortest=1, split="val")
    part = sampled(windows, 4)
    counts = dict(zip(*np.unique(windows.video, return_counts=True), strict=True))
    found = dict(zip(*np.unique(part.video, return_counts=True), strict=True))
    assert found == {video: min(4, count) for video, count in counts.items()}
    places = [(v, s, n) for v, s, n in zip(part.video, part.start, part.lengths, strict=True)]
    every = [
        (v, s, n) for v, s, n in zip(windows.video, windows.start, windows.lengths, strict=True)
    ]
    assert [place for place in every if place in set(places)] == places
    assert len(set(part.start.tolist())) > 2  # not the first ones alone
    assert len(sampled(windows, 10_000)) == len(windows)
