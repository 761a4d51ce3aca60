import numpy as np
import pytest

from cefito.evaluation.calibration import best_probabilities, calibration, searched_mass
from cefito.search.problem import Plans, SearchCost


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


def test_by_hand():
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
