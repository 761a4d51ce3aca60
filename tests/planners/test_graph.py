from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.planners.shared.transitions import (
    cheapest_paths,
    transition_costs,
    transition_counts,
    transition_probabilities,
)
from made_windows import taxonomy_of, windows_of


def slow_costs(counts, horizon, smoothing):
    """Costs of transitions by plain loops."""
    size = len(counts)
    total = sum(map(sum, counts))
    costs, unseen = {}, []
    for one, other in product(range(size), repeat=2):
        row = sum(counts[one]) + smoothing * size
        if counts[one][other] + smoothing > 0:
            costs[one, other] = -np.log((counts[one][other] + smoothing) / row)
        else:
            costs[one, other] = -np.log((sum(line[other] for line in counts) + 1) / (total + size))
            unseen.append((one, other))
    most = max(costs.values())
    for pair in unseen:
        costs[pair] += 1 + (horizon - 1) * most
    return costs


def slow_paths(costs, size, first, last, horizon):
    """All paths with their costs, in the order of costs to nine decimals, then of ids."""
    paths = [(first, *between, last) for between in product(range(size), repeat=horizon - 2)]
    priced = [(round(sum(costs[pair] for pair in pairwise(path)), 9), path) for path in paths]
    return sorted(priced)


@st.composite
def graphs(draw):
    """Few counts, often none, often equal."""
    size = draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = generator.integers(0, draw(st.integers(1, 5)), (size, size)) * (
        generator.random((size, size)) < 0.7
    )
    return counts.astype(np.int64)


def test_counts_by_hand():
    def counts_of(actions, size):
        windows = windows_of(actions, np.zeros((2, len(actions), 2)), taxonomy_of(1, size))
        return transition_counts(windows, size)

    counts = counts_of([[0, 1, 2], [1, 2, 2], [2, 0, 1]], 4)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[0, 2, 0, 0], [0, 0, 2, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert counts_of([[0], [1]], 2).tolist() == [[0, 0], [0, 0]]


def test_probabilities_by_hand():
    counts = np.array([[1, 3], [0, 0]])
    assert transition_probabilities(counts).tolist() == [[0.25, 0.75], [0, 0]]
    assert transition_probabilities(counts, smoothing=0.5).tolist() == [[0.3, 0.7], [0.5, 0.5]]


@settings(deadline=None)
@given(counts=graphs(), horizon=st.integers(2, 5), smoothing=st.sampled_from([0.0, 0.1, 1.0]))
def test_costs_against_loops(counts, horizon, smoothing):
    costs = transition_costs(counts, horizon=horizon, smoothing=smoothing)
    expected = slow_costs(counts.tolist(), horizon, smoothing)
    assert np.isfinite(costs).all()
    for pair, cost in expected.items():
        assert costs[pair] == pytest.approx(cost, abs=1e-12)


@settings(deadline=None)
@given(
    counts=graphs(),
    horizon=st.integers(2, 5),
    smoothing=st.sampled_from([0.0, 0.1]),
    count=st.integers(1, 12),
    ends=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_paths_against_all_paths(counts, horizon, smoothing, count, ends):
    size = len(counts)
    first, last = (end % size for end in ends)
    costs = transition_costs(counts, horizon=horizon, smoothing=smoothing)
    slow = slow_costs(counts.tolist(), horizon, smoothing)
    expected = slow_paths(slow, size, first, last, horizon)[:count]
    given = {"first": first, "last": last, "horizon": horizon, "count": count}
    for width in (None, size ** (horizon - 2)):  # a beam that never drops a prefix
        paths, spent = cheapest_paths(costs, width=width, **given)
        assert paths.dtype == np.int64
        assert paths.tolist() == [list(path) for _, path in expected]
        np.testing.assert_allclose(spent, [cost for cost, _ in expected], atol=1e-8)


def slow_beam(costs, first, last, horizon, count, width):
    beam = [((first,), 0.0)]
    for _ in range(horizon - 2):
        longer = [
            ((*path, action), spent + costs[path[-1], action])
            for path, spent in beam
            for action in range(len(costs))
        ]
        beam = sorted(longer, key=lambda one: (round(one[1], 9), one[0]))[:width]
    ended = [((*path, last), spent + costs[path[-1], last]) for path, spent in beam]
    return sorted(ended, key=lambda one: (round(one[1], 9), one[0]))[:count]


@settings(deadline=None)
@given(counts=graphs(), horizon=st.integers(2, 5), width=st.integers(1, 6), count=st.integers(1, 6))
def test_beam_against_a_loop(counts, horizon, width, count):
    costs = transition_costs(counts, horizon=horizon)
    first, last = 0, len(counts) - 1
    given = {"horizon": horizon, "count": count, "width": width}
    paths, spent = cheapest_paths(costs, first=first, last=last, **given)
    expected = slow_beam(costs, first, last, horizon, count, width)
    assert paths.tolist() == [list(path) for path, _ in expected]
    np.testing.assert_allclose(spent, [cost for _, cost in expected], atol=1e-8)


def test_ties_are_ordered_by_ids():
    costs = transition_costs(np.ones((3, 3), np.int64), horizon=4)
    every = [[2, *between, 1] for between in product(range(3), repeat=2)]
    for width in (None, 9):
        paths, _ = cheapest_paths(costs, first=2, last=1, horizon=4, count=9, width=width)
        assert paths.tolist() == every
    # 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1 in the last bit
    costs = np.full((6, 6), 9.0)
    costs[[0, 1, 2], [1, 2, 5]] = 0.1, 0.2, 0.3
    costs[[0, 3, 4], [3, 4, 5]] = 0.3, 0.2, 0.1
    assert 0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1
    for width in (None, 36):
        paths, spent = cheapest_paths(costs, first=0, last=5, horizon=4, count=2, width=width)
        assert paths.tolist() == [[0, 1, 2, 5], [0, 3, 4, 5]]
        assert spent.tolist() == [0.6, 0.6]
