from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cefito.evaluation import statistics
from cefito.evaluation.statistics import (
    best_probabilities,
    bootstrap_width,
    calibration,
    paired_difference,
    searched_mass,
    seed_interval,
)
from cefito.search.problem import Plans, SearchCost

values = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


@given(values=values)
def test_interval_against_scipy(values):
    interval, scale = seed_interval(values), stats.sem(values)
    if scale > 0:
        low, high = stats.t.interval(0.9, len(values) - 1, loc=np.mean(values), scale=scale)
        assert interval.mean - interval.half_width == pytest.approx(low, abs=1e-9)
        assert interval.mean + interval.half_width == pytest.approx(high, abs=1e-9)


@given(values=values)
def test_width_against_a_loop(values):
    drawn = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
    means = sorted(sum(values[place] for place in row) / len(values) for row in drawn)

    def percentile(share):
        below = int(share * 999)
        return means[below] + (share * 999 - below) * (means[below + 1] - means[below])

    expected = percentile(0.95) - percentile(0.05)
    assert bootstrap_width(values) == pytest.approx(expected, abs=1e-9)


def slow_difference(one, other, video, draws):
    """Mean and ends of the interval by plain loops over draws, videos and windows."""
    videos = sorted(set(video))

    def rates(rows):
        return [
            100 * (np.mean([seed[row] for seed in one]) - np.mean([seed[row] for seed in other]))
            for row in rows
        ]

    found = []
    for drawn in np.random.default_rng(0).integers(len(videos), size=(draws, len(videos))):
        rows = [row for place in drawn for row in range(len(video)) if video[row] == videos[place]]
        found.append(sum(rates(rows)) / len(rows))
    return np.mean(rates(range(len(video)))), *np.percentile(found, [5, 95])


@st.composite
def studies(draw):
    windows = draw(st.integers(1, 12))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    seeds = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    kind = draw(st.sampled_from([bool, np.int64, np.float64]))
    one, other = (generator.integers(0, 2, (count, windows)).astype(kind) for count in seeds)
    return one, other, generator.integers(0, draw(st.integers(1, 6)), windows)


@given(study=studies(), draws=st.integers(1, 20))
def test_difference_against_a_loop(study, draws):
    one, other, video = study
    with patch.object(statistics, "DRAWS", draws):
        found = paired_difference(one, other, video)
    expected = slow_difference(one.tolist(), other.tolist(), video.tolist(), draws)
    assert (found.mean, found.low, found.high) == pytest.approx(expected, abs=1e-9)
    if len(one) == len(other):
        half = seed_interval(100 * (one.mean(axis=1) - other.mean(axis=1))).half_width
        assert found.seeds.mean == pytest.approx(found.mean, abs=1e-9)
        assert found.seeds.half_width == (half if half is None else pytest.approx(half, abs=1e-9))
    else:
        assert found.seeds is None


@pytest.mark.nightly
def test_intervals_cover_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(0)
    intervals = [seed_interval(generator.normal(40, 3, 5).tolist()) for _ in range(2000)]
    covered = np.mean([abs(interval.mean - 40) <= interval.half_width for interval in intervals])
    assert covered == pytest.approx(0.9, abs=0.02)
    covered = 0
    # 80 videos of 1 to 6 windows, each with success rates of its own: 0.2 apart on average
    for _ in range(300):
        video = np.arange(80).repeat(generator.integers(1, 7, 80))
        rate = generator.uniform(0.1, 0.6, 80)[video]
        gain = generator.uniform(0.0, 0.4, 80)[video]
        one, other = (generator.random((3, len(video))) < share for share in (rate + gain, rate))
        found = paired_difference(one, other, video)
        covered += found.low <= 20 <= found.high
    assert covered / 300 == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_values_that_cannot_be_used(bad):
    for function in (seed_interval, bootstrap_width):
        with pytest.raises(ValueError, match="expected finite numbers, at least"):
            function(bad)
    with pytest.raises(ValueError, match="at least 2"):
        bootstrap_width([1.0])


@pytest.mark.parametrize(
    ("one", "other", "video"),
    [
        ([1, 0], [[1, 0]], [0, 1]),
        ([[]], [[]], []),
        ([[1, 0]], [[1]], [0, 1]),
        ([[1, 0]], [[1, 1]], [0]),
    ],
)
def test_differences_of_other_windows(one, other, video):
    with pytest.raises(ValueError, match="of the same windows"):
        paired_difference(one, other, video)


def plans(probabilities, mass=None):
    count = 0 if probabilities is None else len(probabilities)
    return Plans(
        np.zeros((count, 2), np.int64),
        np.zeros(count),
        np.zeros(count),
        SearchCost(0, 0),
        exact=True,
        probabilities=None if probabilities is None else np.array(probabilities),
        searched_mass=mass,
    )


def test_calibration_by_hand():
    """Thirty windows, two a bin: those of the first bin have 0.01 and 0.02, and so on."""
    probabilities = np.arange(1, 31) / 100
    right = np.zeros(30)
    right[[29, 28, 27, 10]] = 1
    shuffled = np.random.default_rng(0).permutation(30)
    found = calibration(probabilities[shuffled], right[shuffled], mass=0.5)
    assert found.reliability.windows == [2] * 15
    np.testing.assert_allclose(found.reliability.probability, np.arange(1.5, 30, 2))
    rates = [0.0] * 15
    rates[14], rates[13], rates[5] = 100, 50, 50
    np.testing.assert_allclose(found.reliability.success, rates)
    expected = np.mean(np.abs(np.arange(1.5, 30, 2) - rates))
    assert found.expected_calibration_error == pytest.approx(expected)
    assert found.success_at_half_coverage == pytest.approx(100 * 3 / 15)
    surest = right[::-1].cumsum() / np.arange(1, 31)
    assert found.risk_coverage_area == pytest.approx(100 * (1 - surest).mean())
    assert found.mean_probability == pytest.approx(15.5)
    assert found.searched_mass == 50
    curve = found.risk_coverage
    assert curve.coverage == list(range(0, 101, 5))
    assert curve.success[0] == curve.success[1] == 100  # the single surest; two of thirty
    assert curve.success[-1] == pytest.approx(100 * 4 / 30)
    assert curve.min_probability[0] == 0.3
    assert curve.min_probability[-1] == 0.01


@pytest.mark.nightly
@pytest.mark.parametrize("together", [False, True], ids=["windows", "videos"])
def test_error_by_chance_is_that_of_right_probabilities(together):
    """Also if all windows of a video are right or wrong together."""
    generator, videos = np.random.default_rng(0), np.repeat(np.arange(30), 10)
    probabilities = (generator.random(30)[videos] + generator.random(300)) / 2
    found = []
    for _ in range(80):
        drawn = generator.random(30)[videos] if together else generator.random(300)
        found.append(calibration(probabilities, drawn < probabilities, videos=videos))
    chance = np.mean([one.chance_calibration_error for one in found])
    errors = [one.expected_calibration_error for one in found]
    assert chance == pytest.approx(np.mean(errors), rel=0.05)
    assert np.mean([one.calibration_p_value < 0.1 for one in found]) == pytest.approx(0.1, abs=0.06)
    half_right = calibration(np.full(300, 0.7), np.arange(300) % 2, videos=videos)
    assert half_right.expected_calibration_error == pytest.approx(20)
    assert half_right.calibration_p_value < 0.01


def test_equal_probabilities_are_averaged():
    """The order of windows does not matter, however many are alike."""
    probabilities = [0.5] * 10 + [0.2] * 10
    right = np.array([1] * 5 + [0] * 5 + [1, 1] + [0] * 8)
    found = calibration(probabilities, right)
    assert found == calibration(probabilities, np.concatenate([right[:10][::-1], right[10:]]))
    assert found.expected_calibration_error == pytest.approx(0)
    assert found.success_at_half_coverage == pytest.approx(50)
    assert found.risk_coverage.success[0] == pytest.approx(50)


def test_probabilities_of_plans():
    some = [plans([0.5, 0.1], 0.8), plans([]), plans([0.2], 0.4)]
    assert best_probabilities(some).tolist() == [0.5, 0, 0.2]
    assert searched_mass(some) is None
    assert searched_mass([some[0], some[2]]) == pytest.approx(0.6)
    assert best_probabilities([*some, plans(None)]) is None
    assert best_probabilities([]) is None
