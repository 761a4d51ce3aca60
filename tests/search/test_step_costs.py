import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.search import StepCosts
from cefito.search.feasible import Feasible

from .conftest import chain_cost, chains, constraint_sets, satisfies

shapes = st.integers(1, 4).flatmap(
    lambda size: st.tuples(st.integers(1, 5 if size < 4 else 4), st.just(size))
)


def ranked(chain: StepCosts) -> list[tuple[float, tuple[int, ...]]]:
    """All sequences of finite cost, cheapest first, ties in their order."""
    every = [
        (chain_cost(chain, places), places)
        for places in itertools.product(range(chain.size), repeat=chain.horizon)
    ]
    return sorted(one for one in every if np.isfinite(one[0]))


@given(data=st.data(), shape=shapes, infinite=st.booleans(), count=st.integers(1, 80))
def test_cheapest_is_a_sorted_list_of_everything(data, shape, infinite, count):
    chain = data.draw(chains(*shape, infinite=infinite))
    expected = ranked(chain)
    found = chain.cheapest(count)
    assert (
        list(zip(found.costs.tolist(), map(tuple, found.sequences.tolist()), strict=True))
        == expected[:count]
    )
    assert found.complete
    rest = expected[count:]
    assert found.bound <= rest[0][0] if rest else found.bound == np.inf


@given(
    data=st.data(),
    shape=shapes,
    infinite=st.booleans(),
    count=st.integers(1, 40),
    most=st.sampled_from([1, 8, 1 << 17]),
)
def test_cheapest_within_constraints(data, shape, infinite, count, most):
    chain, actions = data.draw(chains(*shape, infinite=infinite)), tuple(range(shape[1]))
    constraints = data.draw(constraint_sets(shape[0], actions))
    try:
        children = Feasible(constraints, actions, shape[0]).children
    except ConfigError:
        return
    expected = [one for one in ranked(chain) if satisfies(one[1], constraints)]
    found = chain.cheapest(count, children, most=most)
    listed = list(zip(found.costs.tolist(), map(tuple, found.sequences.tolist()), strict=True))
    assert found.costs.tolist() == sorted(found.costs.tolist())
    assert len(set(listed)) == len(listed) <= count
    assert set(listed) <= set(expected)
    others = [cost for cost, places in expected if (cost, places) not in listed]
    assert not others or found.bound <= min(others)
    if most > 8:
        assert found.complete
    if found.complete:
        assert found.costs.tolist() == [cost for cost, _ in expected[:count]]
        if found.bound == np.inf:
            assert listed == expected[:count]


def test_a_narrow_search_says_that_it_may_have_missed_something():
    """The lower bound of the kept prefix is not attained: what follows it cheaply is forbidden."""
    chain = StepCosts(costs=(np.array([0.0, 1.0]), np.array([[0.0, 9.0], [3.0, 3.0]])))

    def children(prefixes):
        allowed = np.ones((len(prefixes), 2), dtype=np.bool_)
        if prefixes.shape[1]:
            allowed[prefixes[:, 0] == 0, 0] = False
        return allowed

    narrow = chain.cheapest(1, children, most=1)
    assert (narrow.sequences.tolist(), narrow.costs.tolist(), narrow.bound, narrow.complete) == (
        [[0, 1]],
        [9.0],
        4.0,
        False,
    )
    wide = chain.cheapest(1, children)
    assert (wide.sequences.tolist(), wide.costs.tolist(), wide.complete) == ([[1, 0]], [4.0], True)


def test_nothing_is_possible():
    found = StepCosts(costs=(np.full(2, np.inf), np.zeros(2))).cheapest(5)
    assert found.sequences.shape == (0, 2)
    assert found.complete
    assert found.bound == np.inf


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2,), (2, 3)], r"step 2 have shape \[2, 3\]; expected one to 2 axes of 2"),
        ([(2, 2)], r"step 1 have shape \[2, 2\]; expected one to 1 axes of 2"),
        ([(2,), (2, 2, 2)], r"step 2 have shape \[2, 2, 2\]; expected one to 2 axes of 2"),
        ([(2,), (2,), (2,), (2, 2, 2, 2)], r"step 4 .* expected one to 3 axes of 2"),
        ([(2,), (3,)], r"step 2 have shape \[3\]"),
        ([(2,), ()], r"step 2 have shape \[\]"),
    ],
)
def test_bad_shapes(shapes, message):
    with pytest.raises(ConfigError, match=message):
        StepCosts(costs=tuple(np.zeros(shape) for shape in shapes))


@pytest.mark.parametrize(("horizon", "size"), [(3, 3), (2, 4)])
def test_chains_of_different_shapes_do_not_add(horizon, size):
    message = f"2 steps and 3 actions cannot be added to costs of {horizon} steps and {size}"
    with pytest.raises(ConfigError, match=message):
        StepCosts.free(2, 3) + StepCosts.free(horizon, size)


@given(data=st.data(), shape=shapes)
def test_sums_say_what_their_tables_say(data, shape):
    one, two = (data.draw(chains(*shape, infinite=True)) for _ in range(2))
    both = one + two + one
    whole = StepCosts(costs=both.costs)
    assert (both.horizon, both.size, both.finite) == (*shape, whole.finite)
    sequences = np.array(list(itertools.product(range(shape[1]), repeat=shape[0])))
    costs = 2 * one.cost(sequences) + two.cost(sequences)
    assert both.cost(sequences).tolist() == whole.cost(sequences).tolist() == costs.tolist()
    for step in range(shape[0]):
        assert both.step(step, sequences).tolist() == whole.step(step, sequences).tolist()
        prefixes = sequences[:, :step]
        np.testing.assert_array_equal(both.children(prefixes), whole.children(prefixes))
    ours, theirs = both.cheapest(10), whole.cheapest(10)
    assert ours.sequences.tolist() == theirs.sequences.tolist()
