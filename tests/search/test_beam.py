import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.search import BeamSearch, Constraints, StepCosts

from .conftest import (
    DummyField,
    assert_consistent,
    everything,
    listed,
    problem,
    problems_of,
    scrambled,
)


@given(
    horizon=st.integers(1, 5),
    size=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    width=st.sampled_from([1, 2]),
)
def test_additive_energies_need_no_width(horizon, size, seed, width):
    costs = np.random.default_rng(seed).permuted(np.tile(np.arange(size), (horizon, 1)), axis=1)
    dummy = DummyField(
        horizon, lambda _, __, row: sum(int(costs[step, action]) for step, action in enumerate(row))
    )
    (plans,) = BeamSearch(width=width).search(dummy, [problem(0, range(size))], 1)
    assert plans.actions.tolist() == [costs.argmin(axis=1).tolist()]
    assert plans.evaluated.leaves <= size + (horizon - 1) * size * width
    assert plans.exact == all(size**step <= width for step in range(1, horizon))


@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    actions=st.sampled_from([(4,), (2, 9), (0, 3, 7), (1, 2, 5, 6)]),
    width=st.sampled_from([1, 2, 5, 300]),
    diversity=st.sampled_from([0.0, 0.5, 5.0]),
    top_k=st.integers(1, 8),
)
def test_invariants(data, horizon, actions, width, diversity, top_k):
    one = data.draw(problems_of(horizon, actions))
    expected = everything(one, horizon, scrambled)
    if not expected:
        return
    dummy = DummyField(horizon, scrambled)
    (plans,) = BeamSearch(width=width, diversity=diversity).search(dummy, [one], top_k)
    assert_consistent(plans, expected)
    asked = [row for _, _, row in dummy.leaves]
    assert len(set(asked)) == len(asked) == plans.evaluated.leaves
    assert set(asked) <= {row for _, row, _ in expected}
    assert listed(plans) == [row for row in expected if row[1] in asked][:top_k]
    assert len(asked) <= len(actions) * (1 + width * (horizon - 1))
    if plans.exact or width == 300:
        assert plans.exact
        assert len(asked) == len(expected)


@pytest.mark.parametrize(
    ("diversity", "kept", "best"),
    [
        (0.0, {(0, 0), (0, 1)}, [0, 0, 0]),
        (2.0, {(0, 0), (0, 1)}, [0, 0, 0]),  # 3 for (0, 1) is still less than 4 for (1, 1)
        (3.5, {(0, 0), (1, 1)}, [1, 1, 2]),
    ],
)
def test_diversity_keeps_families_apart(diversity, kept, best):
    """The best sequence begins as the second family does, which looks worse at first."""
    energies = {
        (0, 0, 0): 0.0,
        (1, 0, 0): 5.0,
        (2, 0, 0): 9.0,
        (0, 1, 0): 1.0,
        (0, 2, 0): 2.0,
        (1, 1, 0): 4.0,
        (1, 2, 0): 6.0,
        (1, 1, 2): -10.0,
    }
    dummy = DummyField(3, lambda _, __, row: energies.get(row, 20.0))
    (plans,) = BeamSearch(width=2, diversity=diversity).search(dummy, [problem(0, [0, 1, 2])], 1)
    assert {row[:2] for _, _, row in dummy.leaves if row[2]} == kept
    assert plans.actions.tolist() == [best]
    assert not plans.exact


def test_diversity_grows_with_the_place_among_siblings():
    energies = {(0, 0): 0.0, (0, 1): 1.0, (0, 2): 2.0, (1, 0): 3.0, (1, 1): 3.5, (1, 2): 4.5}
    dummy = DummyField(3, lambda _, __, row: energies.get(row[:2], 20.0) + row[2])
    BeamSearch(width=4, diversity=2.0).search(dummy, [problem(0, [0, 1, 2])], 1)
    # 0, 1 + 2, 2 + 4; 3, 3.5 + 2, 4.5 + 4
    assert {row[:2] for _, _, row in dummy.leaves if row[2] == 1} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }
    dummy.nodes.clear()
    BeamSearch(width=4).search(dummy, [problem(0, [0, 1, 2])], 1)
    assert {row[:2] for _, _, row in dummy.leaves if row[2] == 1} == {
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
    }


def test_prefixes_are_completed_by_the_guide():
    guide = StepCosts(
        costs=(np.zeros(2), np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    )
    dummy = DummyField(3, lambda *_: 0.0)
    BeamSearch(width=1).search(dummy, [problem(0, [4, 6], guide=guide)], 1)
    assert {row for _, _, row in dummy.leaves[:2]} == {(4, 4, 6), (6, 6, 6)}


def test_constraints_are_respected_by_completions():
    one = problem(
        0,
        [1, 2, 3],
        constraints=Constraints(pinned=((2, 3),), no_repeats=True),
        guide=StepCosts(costs=(np.zeros(3), np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]))),
    )
    dummy = DummyField(3, scrambled)
    (plans,) = BeamSearch(width=1).search(dummy, [one], 9)
    assert {tuple(row) for row in plans.actions.tolist()} == {(1, 3, 2), (2, 3, 1)}
