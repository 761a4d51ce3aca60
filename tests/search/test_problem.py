import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.search import Effort, Plans, Problem
from cefito.search.problem import Best, check_problems

OBSERVATION = np.zeros(2, np.float32)


def problem(*actions: int) -> Problem:
    return Problem(initial=OBSERVATION, goal=OBSERVATION, actions=actions)


@settings(deadline=None, max_examples=200)
@given(energies=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, float("inf")]), min_size=9, max_size=9),
       top_k=st.integers(1, 12), cuts=st.sets(st.integers(1, 8)))
def test_best_is_a_stable_sort_however_it_is_fed(energies, top_k, cuts):
    best = Best(top_k)
    for first, last in itertools.pairwise([0, *sorted(cuts), 9]):
        best.add(torch.tensor(energies[first:last]), first)
    plans = best.plans(problem(2, 5, 7), 2, Effort(token_forwards=4, leaves=9), exact=True)
    sequences = list(itertools.product([2, 5, 7], repeat=2))
    expected = sorted(range(9), key=lambda rank: (energies[rank], rank))[:top_k]
    assert plans.actions.tolist() == [list(sequences[rank]) for rank in expected]
    assert plans.energies.tolist() == [energies[rank] for rank in expected]
    assert len(plans) == min(top_k, 9)
    assert plans.evaluated == Effort(token_forwards=4, leaves=9)
    assert plans.exact


def test_energies_that_are_no_numbers_come_last():
    """A field that diverged in training still gives plans, so that its validation scores are bad, not an exception."""
    best = Best(2)
    best.add(torch.tensor([torch.nan, 3.0, torch.nan, 1.0]), 0)
    assert best.plans(problem(0, 1), 2, Effort(0, 4), exact=True).actions.tolist() == [[1, 1], [0, 1]]
    best = Best(2)
    best.add(torch.full((4,), torch.nan), 0)
    plans = best.plans(problem(0, 1), 2, Effort(0, 4), exact=True)
    assert plans.actions.tolist() == [[0, 0], [0, 1]]
    assert plans.energies.tolist() == [np.inf, np.inf]


def test_types_of_plans():
    best = Best(3)
    best.add(torch.tensor([2.0, 1.0]), 0)
    plans = best.plans(problem(4, 9), 1, Effort(0, 2), exact=False)
    assert isinstance(plans, Plans)
    assert plans.actions.dtype == np.int64
    assert plans.energies.dtype == np.float64
    assert plans.actions.tolist() == [[9], [4]]
    assert not plans.exact


@pytest.mark.parametrize(("actions", "top_k", "message"), [
    ((), 1, "a problem allows no action at all"),
    ((2, 1), 1, r"allowed actions \[2, 1\] must be ascending without repeats"),
    ((1, 1), 1, r"allowed actions \[1, 1\] must be ascending without repeats"),
    ((1,), 0, "top_k is 0; expected at least 1"),
])
def test_problems_that_no_search_could_solve(actions, top_k, message):
    with pytest.raises(ConfigError, match=message):
        check_problems([problem(1, 2), problem(*actions)], top_k)


def test_problems_that_can_be_solved():
    check_problems([], 1)
    check_problems([problem(0), problem(3, 5)], 7)
