from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.field.fields import IncrementalField
from cefito.search import ExhaustiveSearch
from cefito.search.base import CACHE_MIB
from random_fields import random_field

from .conftest import (
    DummyField,
    assert_same,
    direct_energies,
    everything,
    problem,
    problems_of,
    random_problems,
    scrambled,
)
from .naive import naive_search


@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    count=st.integers(1, 3),
    memory=st.sampled_from([1, 200, 10**6]),
)
def test_only_what_leads_to_an_allowed_sequence_is_computed(data, horizon, count, memory):
    actions = (0, 3, 7)
    problems = [data.draw(problems_of(horizon, actions, goal=goal)) for goal in range(count)]
    expected = [{row for _, row, _ in everything(one, horizon, scrambled)} for one in problems]
    if not all(expected):
        return
    dummy = DummyField(horizon, scrambled)
    found = ExhaustiveSearch(memory_mib=memory / 2**20).search(dummy, problems, 1)
    for goal, (plans, every) in enumerate(zip(found, expected, strict=True)):
        nodes = [row for _, one, row in dummy.nodes if one == goal]
        leading = {row[:length] for row in every for length in range(1, horizon + 1)}
        assert len(set(nodes)) == len(nodes) or (memory < 10**6 and problems[goal].constraints)
        assert {row for row in nodes if len(row) == horizon} == every
        assert leading == set(nodes)
        assert plans.evaluated.leaves == len(every)
        assert plans.evaluated.token_forwards == 1 + 2 * len(nodes)


@given(
    horizon=st.integers(1, 4),
    size=st.integers(1, 4),
    queries=st.integers(1, 4),
    bound=st.integers(1, 5000),
)
def test_memory_bound_is_kept(horizon, size, queries, bound):
    """Levels together never hold more than the bound, or than one prefix's children need."""
    dummy = DummyField(horizon, scrambled, child_bytes=10)
    problems = [problem(goal, range(size)) for goal in range(queries)]
    ExhaustiveSearch(memory_mib=bound / 2**20).search(dummy, problems, 1)
    for depth in range(horizon):
        most = max(count for level, count in dummy.children if level == depth)
        each = dummy.bytes_per_child(depth, leaf=depth == horizon - 1)
        assert most == size or most * each <= bound / horizon
    assert sum(count for _, count in dummy.children) == queries * sum(
        size**level for level in range(1, horizon + 1)
    )


def test_the_cache_caps_the_bound_on_a_cpu():
    """The cap, over two levels, is room for eight leaves of a sixteenth of it."""
    for memory in (CACHE_MIB, 10**6):
        dummy = DummyField(2, scrambled, child_bytes=CACHE_MIB * 2**16)
        ExhaustiveSearch(memory_mib=memory).search(dummy, [problem(0, range(4))], 1)
        assert [count for depth, count in dummy.children if depth == 1] == [8, 8]


make_field = partial(random_field, actions=8)
SETS = [[0, 2, 5], [0, 2, 5], [1, 3, 4, 6], [0, 2, 5], [7], [1, 3, 4, 6]]


@pytest.mark.parametrize(
    ("horizon", "distance", "observation_dim"),  # features below and above the width
    [(3, "l2", 40), (3, "mean_square", 12), (4, "mean_square", 40)],
)
def test_exhaustive_equals_naive(horizon, distance, observation_dim):
    made = make_field(horizon, horizon=horizon, observation_dim=observation_dim, distance=distance)
    incremental, problems = IncrementalField(made), random_problems(horizon, SETS, observation_dim)
    slow = naive_search(incremental, problems, 10)
    five = 5 * 3 * incremental.bytes_per_child(1, leaf=False) * horizon / 2**20
    for memory in (1e-9, five, 256):  # one prefix, five of level 1, all at once
        fast = ExhaustiveSearch(memory_mib=memory).search(incremental, problems, 10)
        for one, ours, theirs in zip(problems, fast, slow, strict=True):
            assert_same(ours, theirs)
            np.testing.assert_allclose(ours.energies, direct_energies(made, one, ours), rtol=1e-5)
