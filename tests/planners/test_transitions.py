from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.data import cut_windows
from cefito.planners.shared.transitions import (
    counted_transitions,
    decode,
    log_guarded,
    transition_counts,
)
from cefito.search.problem import SearchCost

KNOBS = {"train": 30, "val": 4, "test": 4, "dim": 4}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def best_by_hand(emissions, counts, smoothing, count):
    """The best sequences by plain loops over all, as pairs (sum, sequence)."""
    size, found = len(counts), []
    for sequence in product(range(size), repeat=len(emissions)):
        product_of_all = 1.0
        for step, action in enumerate(sequence):
            product_of_all *= float(emissions[step][action].exp())
            if step:
                row = [value + smoothing for value in counts[sequence[step - 1]].tolist()]
                share = row[action] / sum(row) if sum(row) else 1 / size
                product_of_all *= share
        if product_of_all > 0:
            found.append((np.log(product_of_all), sequence))
    return sorted(found, key=lambda pair: (-round(pair[0], 9), pair[1]))[:count]


@given(
    horizon=st.integers(1, 4),
    size=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    smoothing=st.sampled_from([0.0, 1.0]),
    count=st.integers(1, 7),
)
def test_the_best_sequences_are_those_of_all(horizon, size, seed, smoothing, count):
    """Rows of counts are empty now and then."""
    emissions = torch.randn(2, horizon, size, generator=generator(seed)).log_softmax(dim=2)
    counts = torch.randint(0, 3, (size, size), generator=generator(seed + 1))
    counts[torch.rand(size, generator=generator(seed + 2)) < 0.3] = 0
    best = decode(emissions, log_guarded(counts, smoothing=smoothing), count)
    assert best.possible.all()
    for row, plans in enumerate(best.plans(SearchCost(1, 0))):
        expected = best_by_hand(emissions[row], counts, smoothing, count)
        assert plans.exact
        assert [tuple(actions) for actions in plans.actions.tolist()] == [
            sequence for _, sequence in expected
        ]
        np.testing.assert_allclose(-plans.energies, [total for total, _ in expected], rtol=1e-5)


def test_an_empty_row_prefers_nothing_and_spoils_nothing():
    counts = torch.tensor([[0, 3, 1], [0, 0, 0], [2, 0, 2]])
    transitions = log_guarded(counts)
    assert not transitions.isnan().any()
    torch.testing.assert_close(
        transitions.exp(),
        torch.tensor([[0, 0.75, 0.25], [1 / 3] * 3, [0.5, 0, 0.5]], dtype=torch.float64),
    )
    smooth = log_guarded(counts, smoothing=1.0).exp()
    torch.testing.assert_close(smooth[0], torch.tensor([1, 4, 2], dtype=torch.float64) / 7)
    assert torch.equal(log_guarded(torch.zeros(4, 4)).exp(), torch.full((4, 4), 0.25).double())
    # an action after which nothing was seen may still be followed
    emissions = torch.tensor([[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]]).log()
    assert decode(emissions, transitions, 1).sequences.tolist() == [[[1, 2]]]


def test_no_sequence_is_possible():
    """The likeliest action of each step, its sum with substitutes, and nothing else."""
    counts = torch.tensor([[0, 1], [1, 0]])
    emissions = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]]]).log()
    best = decode(emissions, log_guarded(counts), 3)
    assert best.possible.tolist() == [False, True]
    impossible, possible = best.plans(SearchCost(1, 0))
    assert impossible.actions.tolist() == [[0, 0]]
    np.testing.assert_allclose(impossible.energies, [-np.log(1e-10)])
    assert not impossible.exact
    assert possible.actions.tolist() == [[1, 0]]
    np.testing.assert_allclose(possible.energies, [np.log(2)])
    given = decode(emissions, log_guarded(counts), 1, substitutes=torch.full((2, 2), -7.0).double())
    np.testing.assert_allclose(given.sums[:, 0], [-7, -np.log(2)])
    nothing = decode(torch.full((1, 2, 2), -torch.inf), None, 1)
    assert np.isfinite(nothing.plans(SearchCost(1, 0))[0].energies).all()


@pytest.mark.parametrize("horizon", [2, 4])
def test_transitions_of_whole_videos(dataset, horizon):
    windows = cut_windows(dataset, horizon=horizon, split="train")
    actions = len(dataset.taxonomy.actions)
    expected = np.zeros((actions, actions), dtype=np.int64)
    for video in dataset.videos:
        if video.split == "train" and len(video.steps) >= horizon:
            for earlier, later in zip(video.steps, video.steps[1:], strict=False):
                expected[earlier.action, later.action] += 1
    # whichever order the windows come in
    windows = windows.subset(np.random.default_rng(0).permutation(len(windows)))
    np.testing.assert_array_equal(counted_transitions(windows, actions), expected)
    by_windows = transition_counts(windows, actions)
    assert (by_windows > expected).any() == (horizon > 2)


def test_windows_of_one_action_have_no_transitions(dataset):
    windows = cut_windows(dataset, horizon=1, split="train")
    assert not counted_transitions(windows, 50).any()
