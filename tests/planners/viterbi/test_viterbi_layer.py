from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cefito.planners.viterbi.planner import clamped_transitions, decode, log_marginals

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


def best_by_enumeration(emissions, transitions, count):
    """The best sequences of positive probability as (sum, sequence), ties by action ids."""
    every = product(range(emissions.shape[1]), repeat=len(emissions))
    ranked = sorted((-chain_sum(emissions, transitions, one), one) for one in every)
    return [(-cost, sequence) for cost, sequence in ranked[:count] if cost < np.inf]


def test_transition_probabilities():
    counts = torch.tensor([[1, 3, 0], [0, 0, 0], [2, 0, 0]])
    clamped = clamped_transitions(counts)
    assert clamped.dtype == torch.float64
    expected = np.array([[0.25, 0.75, 1e-10], [1, 1, 1], [1, 1e-10, 1e-10]])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clamped, expected, rtol=1e-12)


@given(**SMALL)
def test_marginals_are_those_of_all_sequences(batch, horizon, size, seed):
    emissions = random_emissions(batch, horizon, size, seed=seed)
    transitions = clamped_transitions(random_counts(size, seed))
    result = log_marginals(emissions, transitions).exp()
    assert result.shape == (batch, horizon, size)
    torch.testing.assert_close(result.sum(dim=2), torch.ones(batch, horizon, dtype=torch.float64))
    for row in range(batch):
        expected = marginals_by_enumeration(emissions[row], transitions)
        torch.testing.assert_close(result[row], expected, rtol=1e-8, atol=1e-12)


def test_gradients_of_the_marginals():
    emissions = random_emissions(2, 4, 3, seed=2).requires_grad_()
    transitions = clamped_transitions(random_counts(3, 3, share=0.3))
    assert torch.autograd.gradcheck(
        lambda x: log_marginals(x, transitions).exp(), emissions, atol=1e-7
    )


def test_single_precision_neither_overflows_nor_vanishes():
    emissions = 150 * torch.randn(4, 4, 6, generator=generator(4), dtype=torch.float64)
    transitions = clamped_transitions(random_counts(6, 4, share=0.7))
    single = emissions.float().requires_grad_()
    result = log_marginals(single, transitions)
    assert result.dtype == torch.float32
    torch.testing.assert_close(
        result.double(), log_marginals(emissions, transitions), rtol=1e-4, atol=1e-3
    )
    result.exp().square().sum().backward()
    assert single.grad.isfinite().all()


@given(
    horizon=st.integers(1, 4),
    size=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    count=st.integers(1, 8),
)
def test_decoding(horizon, size, seed, count):
    """The product of marginals and raw transitions; without a possible sequence, the likeliest."""
    emissions = random_emissions(2, horizon, size, seed=seed)
    counts = random_counts(size, seed)
    clamped = clamped_transitions(counts)
    raw = (counts / counts.sum(dim=1, keepdim=True).clamp_min(1)).double().log()
    best = decode(emissions, counts, count)
    for row in range(2):
        marginals = marginals_by_enumeration(emissions[row], clamped).log()
        expected = best_by_enumeration(marginals, raw, count)
        assert bool(best.possible[row]) == bool(expected)
        found, sums = best.sequences[row].tolist(), best.sums[row].tolist()
        if not expected:
            assert found[0] == marginals.argmax(dim=1).tolist()
            assert sums[0] == pytest.approx(chain_sum(marginals, clamped.log(), found[0]))
            assert sums[1:] == [-np.inf] * (len(sums) - 1)
            continue
        # equal up to the order of sequences whose sums differ by rounding only
        finite = [value for value in sums if value > -np.inf]
        np.testing.assert_allclose(finite, [value for value, _ in expected], rtol=1e-6, atol=1e-9)
        kept = found[: len(finite)]
        assert len({*map(tuple, kept)}) == len(kept)
        for sequence, value in zip(kept, finite, strict=True):
            assert value == pytest.approx(chain_sum(marginals, raw, sequence), rel=1e-6)
