import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cefito.search import SearchCost
from cefito.search.problem import Best, places, ranks

from .conftest import problem


@given(
    energies=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, float("inf")]), min_size=9, max_size=9),
    scores=st.none()
    | st.lists(st.sampled_from([0.0, 0.5, 1.0, float("inf")]), min_size=9, max_size=9),
    top_k=st.integers(1, 12),
    cuts=st.sets(st.integers(1, 8)),
    order=st.permutations(range(9)),
)
def test_best_is_a_stable_sort_however_it_is_fed(energies, scores, top_k, cuts, order):
    best = Best(top_k)
    for first, last in itertools.pairwise([0, *sorted(cuts), 9]):
        part = list(order[first:last])
        best.add(
            np.array(energies, dtype=np.float32)[part],
            np.array(part),
            None if scores is None else np.array(scores)[part],
        )
    plans = best.plans(problem(0, (2, 5, 7)), 2, SearchCost(token_forwards=4, leaves=9), exact=True)
    sequences = list(itertools.product([2, 5, 7], repeat=2))
    by = energies if scores is None else scores
    expected = sorted(range(9), key=lambda rank: (by[rank], rank))[:top_k]
    assert plans.actions.tolist() == [list(sequences[rank]) for rank in expected]
    assert plans.energies.tolist() == [energies[rank] for rank in expected]
    assert plans.scores.tolist() == [by[rank] for rank in expected]
    assert len(plans) == len(best) == min(top_k, 9)
    assert plans.evaluated == SearchCost(token_forwards=4, leaves=9)
    assert plans.exact == plans.finite == np.isfinite(energies).all()
    assert plans.tasks is None
    assert plans.actions.dtype == np.int64
    assert plans.energies.dtype == plans.scores.dtype == np.float64


def test_energies_that_are_no_numbers_come_last():
    best = Best(2)
    best.add(np.array([np.nan, 3.0, np.nan, 1.0]), np.arange(4))
    assert best.plans(problem(0, (0, 1)), 2, SearchCost(0, 4), exact=True).actions.tolist() == [
        [1, 1],
        [0, 1],
    ]
    for scores in (None, np.full(4, np.nan)):
        best = Best(2)
        best.add(np.full(4, np.nan), np.arange(4), scores)
        plans = best.plans(problem(0, (0, 1)), 2, SearchCost(0, 4), exact=True)
        assert plans.actions.tolist() == [[0, 0], [0, 1]]
        assert plans.energies.tolist() == plans.scores.tolist() == [np.inf, np.inf]


@given(size=st.integers(1, 6), length=st.integers(1, 5))
def test_ranks_count_sequences_in_order(size, length):
    sequences = np.array(list(itertools.product(range(size), repeat=length)))
    assert ranks(sequences, size).tolist() == list(range(size**length))
    assert places(np.arange(size**length), size, length).tolist() == sequences.tolist()
