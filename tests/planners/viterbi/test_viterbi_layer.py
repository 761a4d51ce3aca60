from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cefito.planners.shared import transitions as shared
from cefito.planners.shared.transitions import k_best
from cefito.planners.viterbi.network import decode, log_marginals, transition_probabilities
from cefito.search.step_costs import StepCosts

SMALL = {
    "batch": st.integers(0, 3),
    "horizon": st.integers(1, 4),
    "size": st.integers(1, 4),
    "seed": st.integers(0, 10**6),
}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_emissions(*shape, seed):
    return F.logsigmoid(3 * torch.randn(shape, generator=generator(seed), dtype=torch.float64))


def random_counts(size, seed, *, share=0.5):
    """Counts of which a share is zero."""
    counts = torch.randint(1, 6, (size, size), generator=generator(seed))
    return counts * (torch.rand(size, size, generator=generator(seed + 1)) >= share)


def chain_sum(emissions, transitions, sequence):
    """Sum of logarithms along one sequence."""
    return sum(float(emissions[step, action]) for step, action in enumerate(sequence)) + sum(
        float(transitions[one, two]) for one, two in pairwise(sequence)
    )


def marginals_by_enumeration(emissions, transitions):
    """Share of each action at each step among all sequences, by their probability; [T, K]."""
    horizon, size = emissions.shape
    shares = torch.zeros(horizon, size, dtype=torch.float64)
    for sequence in product(range(size), repeat=horizon):
        for step, action in enumerate(sequence):
            shares[step, action] += np.exp(chain_sum(emissions, transitions.log(), sequence))
    return shares / shares.sum(dim=1, keepdim=True)


def marginals_by_soft_pointers(emissions, transitions):
    """The published recursion: soft maxima forwards, soft back-pointers multiplied backwards.

    [T, K].
    """
    horizon, size = emissions.shape
    values = emissions[0] - np.log(size)
    pointers = []
    for step in range(1, horizon):
        scores = values[:, None] + transitions.log()
        pointers.append(scores.softmax(dim=0))
        values = scores.logsumexp(dim=0) + emissions[step]
    result = [values.softmax(dim=0)]
    for pointer in reversed(pointers):
        result.insert(0, pointer @ result[0])
    return torch.stack(result)


def best_by_enumeration(emissions, transitions, count):
    """The best sequences of positive probability as (sum, sequence), ties by action ids."""
    every = product(range(emissions.shape[1]), repeat=len(emissions))
    ranked = sorted((-chain_sum(emissions, transitions, one), one) for one in every)
    return [(-cost, sequence) for cost, sequence in ranked[:count] if cost < np.inf]


def test_transition_probabilities():
    counts = torch.tensor([[1, 3, 0], [0, 0, 0], [2, 0, 0]])
    raw = transition_probabilities(counts, clamped=False)
    assert raw.dtype == torch.float64
    assert raw.tolist() == [[0.25, 0.75, 0], [0, 0, 0], [1, 0, 0]]
    clamped = transition_probabilities(counts, clamped=True)
    expected = np.array([[0.25, 0.75, 1e-10], [1, 1, 1], [1, 1e-10, 1e-10]])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clamped, expected, rtol=1e-12)


@given(**SMALL)
def test_marginals_are_those_of_all_sequences(batch, horizon, size, seed):
    emissions = random_emissions(batch, horizon, size, seed=seed)
    transitions = transition_probabilities(random_counts(size, seed), clamped=True)
    result = log_marginals(emissions, transitions).exp()
    assert result.shape == (batch, horizon, size)
    torch.testing.assert_close(result.sum(dim=2), torch.ones(batch, horizon, dtype=torch.float64))
    for row in range(batch):
        for slow in (marginals_by_enumeration, marginals_by_soft_pointers):
            expected = slow(emissions[row], transitions)
            torch.testing.assert_close(result[row], expected, rtol=1e-8, atol=1e-12)


def test_marginals_do_not_depend_on_the_level_of_emissions():
    emissions, transitions = (
        random_emissions(3, 4, 5, seed=1),
        transition_probabilities(random_counts(5, 1), clamped=True),
    )
    shift = torch.tensor([5.0, -300.0, 2.0, 0.0], dtype=torch.float64)[None, :, None]
    torch.testing.assert_close(
        log_marginals(emissions + shift, transitions), log_marginals(emissions, transitions)
    )


def test_gradients_of_the_marginals():
    emissions = random_emissions(2, 4, 3, seed=2).requires_grad_()
    transitions = transition_probabilities(random_counts(3, 3, share=0.3), clamped=True)
    assert torch.autograd.gradcheck(
        lambda x: log_marginals(x, transitions).exp(), emissions, atol=1e-7
    )


def test_single_precision_neither_overflows_nor_vanishes():
    emissions = 150 * torch.randn(4, 4, 6, generator=generator(4), dtype=torch.float64)
    transitions = transition_probabilities(random_counts(6, 4, share=0.7), clamped=True)
    single = emissions.float().requires_grad_()
    result = log_marginals(single, transitions)
    assert result.dtype == torch.float32
    torch.testing.assert_close(
        result.double(), log_marginals(emissions, transitions), rtol=1e-4, atol=1e-3
    )
    result.exp().square().sum().backward()
    assert torch.isfinite(single.grad).all()


@given(**SMALL, count=st.integers(1, 12))
def test_the_best_sequences_are_those_of_all(batch, horizon, size, seed, count):
    """Whole numbers make ties, which go by action ids."""
    emissions = torch.randint(-3, 1, (batch, horizon, size), generator=generator(seed)).double()
    transitions = torch.randint(-3, 1, (size, size), generator=generator(seed + 1)).double()
    transitions[torch.rand(size, size, generator=generator(seed + 2)) < 0.3] = -torch.inf
    result, sums = k_best(emissions, transitions, count)
    assert result.shape == (batch, min(count, size**horizon), horizon)
    for row in range(batch):
        expected = best_by_enumeration(emissions[row], transitions, count)
        kept = sums[row] > -torch.inf
        assert [tuple(sequence) for sequence in result[row][kept].tolist()] == [
            sequence for _, sequence in expected
        ]
        assert sums[row][kept].tolist() == [value for value, _ in expected]


def test_queries_are_worked_in_chunks(monkeypatch):
    emissions, transitions = (
        random_emissions(7, 3, 5, seed=7),
        torch.randn(5, 5, generator=generator(7)).double(),
    )
    whole = k_best(emissions, transitions, 4)
    monkeypatch.setattr(shared, "_CHUNK_BYTES", 2 * 5 * 5 * 8)  # all 25 transitions of two queries
    calls, k_best_of_chunk = [], shared._k_best
    monkeypatch.setattr(
        shared,
        "_k_best",
        lambda part, *rest: calls.append(len(part)) or k_best_of_chunk(part, *rest),
    )
    parts = k_best(emissions, transitions, 4)
    assert calls == [2, 2, 2, 1]
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_a_large_vocabulary():
    emissions = random_emissions(1, 4, 778, seed=8)
    counts = random_counts(778, 8, share=0.99)
    best = decode(emissions, counts, 3, "viterbi")
    marginals = log_marginals(emissions, transition_probabilities(counts, clamped=True))[0]
    raw = transition_probabilities(counts, clamped=False).log()
    costs = tuple((-marginals[step] - (raw if step else 0)).numpy() for step in range(4))
    expected = StepCosts(costs=costs).cheapest(3)
    np.testing.assert_array_equal(best.sequences[0].numpy(), expected.sequences)
    np.testing.assert_allclose(-best.sums[0].numpy(), expected.costs)


@given(
    horizon=st.integers(1, 4),
    size=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    count=st.integers(1, 8),
)
def test_decoding(horizon, size, seed, count):
    emissions, counts = (
        random_emissions(2, horizon, size, seed=seed),
        random_counts(size, seed, share=0.2),
    )
    counts[0, 0] = 1  # so that some sequence is possible
    clamped = transition_probabilities(counts, clamped=True)
    for decoding in ("viterbi", "marginals"):
        best = decode(emissions, counts, count, decoding)
        assert best.possible.all()
        for row in range(2):
            marginals = marginals_by_enumeration(emissions[row], clamped)
            transitions = transition_probabilities(counts, clamped=False).log()
            if decoding == "marginals":
                marginals = marginals_by_enumeration(marginals.log(), clamped)
                transitions = torch.zeros_like(transitions)
            # equal up to the order of sequences whose sums differ by rounding only
            expected = best_by_enumeration(marginals.log(), transitions, count)
            assert (best.sums[row] > -torch.inf).tolist()[: len(expected) + 1].count(True) == len(
                expected
            )
            found, sums = (
                best.sequences[row][: len(expected)].tolist(),
                best.sums[row][: len(expected)],
            )
            np.testing.assert_allclose(
                sums, [value for value, _ in expected], rtol=1e-10, atol=1e-10
            )
            assert len({*map(tuple, found)}) == len(found)
            for sequence, value in zip(found, sums.tolist(), strict=True):
                assert value == pytest.approx(chain_sum(marginals.log(), transitions, sequence))


def test_only_seen_transitions_are_planned():
    """Emissions ask for 0, 0, 0, but only 0 → 1 → 2 was seen."""
    counts = torch.zeros(3, 3, dtype=torch.int64)
    counts[0, 1] = counts[1, 2] = 4
    emissions = torch.tensor([[[0.0, -9, -9]] * 3])
    best = decode(emissions, counts, 5, "viterbi")
    assert best.possible.tolist() == [True]
    assert best.sequences[0, 0].tolist() == [0, 1, 2]
    assert (best.sums[0] > -torch.inf).tolist() == [True] + [False] * 4


def test_no_sequence_is_possible():
    """Of 0 → 1 alone no three steps can be made.

    Then the likeliest action of each step, and that alone.
    """
    counts = torch.zeros(3, 3, dtype=torch.int64)
    counts[0, 1] = 4
    emissions = random_emissions(2, 3, 3, seed=10)
    best = decode(emissions, counts, 4, "viterbi")
    clamped = transition_probabilities(counts, clamped=True)
    marginals = log_marginals(emissions, clamped)
    assert best.possible.tolist() == [False, False]
    assert torch.equal(best.sequences[:, 0], marginals.argmax(dim=2))
    for row in range(2):
        expected = chain_sum(marginals[row], clamped.log(), tuple(best.sequences[row, 0].tolist()))
        assert best.sums[row].tolist() == [pytest.approx(expected)] + [-np.inf] * 3
        assert np.isfinite(expected)
