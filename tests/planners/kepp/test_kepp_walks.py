from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.planners.kepp.planner import WalkGraph, walk_block


def slow_walks(counts, first, last, horizon, count):
    """All walks by hand, with what stands for those that are missing."""
    found = []
    for between in product(range(len(counts)), repeat=horizon - 2):
        chance = Fraction(1)
        for one, other in pairwise((first, *between, last)):
            chance *= Fraction(int(counts[one][other]), int(sum(counts[one])) or 1)
        if chance:
            found.append((-chance, [first, *between, last]))
    walks = [walk for _, walk in sorted(found)][:count]
    if not walks:
        walks = [[first if 2 * step < horizon else last for step in range(horizon)]]
    while len(walks) < count:
        walks.append(walks[-1])
    return walks


@settings(deadline=None)
@given(
    size=st.integers(1, 4),
    horizon=st.integers(2, 5),
    count=st.integers(1, 4),
    number=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
def test_walks_against_all_walks(size, horizon, count, number, seed):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 4, (size, size)) * (generator.random((size, size)) < 0.6)
    ends = generator.integers(0, size, (number, 2))
    walks = WalkGraph(counts, horizon, count).between(ends)
    assert walks.dtype == np.int64
    assert walks.shape == (number, count, horizon)
    for found, (first, last) in zip(walks.tolist(), ends.tolist(), strict=True):
        assert found == slow_walks(counts, first, last, horizon, count)


def test_published_weights():
    walks = torch.tensor([[[0, 1, 2], [0, 3, 2]]])
    third = pytest.approx(1 / 3)
    assert walk_block(walks, 4)[0].tolist() == [
        [third, 0, 0, 0],
        [0, pytest.approx(2 / 3), 0, third],
        [0, 0, third, 0],
    ]


@settings(deadline=None)
@given(
    batch=st.integers(0, 3),
    count=st.integers(0, 4),
    horizon=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_blocks_against_loops(batch, count, horizon, seed):
    walks = np.random.default_rng(seed).integers(0, 3, (batch, count, horizon))
    block = walk_block(torch.from_numpy(walks), 3)
    expected = np.zeros((batch, horizon, 3))
    for query, walk, step in product(range(batch), range(count), range(horizon)):
        weight = (count - walk) / sum(range(1, count + 1))
        expected[query, step, walks[query, walk, step]] = weight
    assert block.dtype == torch.float32
    assert block.shape == expected.shape
    np.testing.assert_allclose(block, expected, atol=1e-6)
