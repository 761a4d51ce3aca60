import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.search import GuidedSearch, Objective, StepCosts

from .conftest import (
    DummyField,
    assert_consistent,
    chain_cost,
    everything,
    listed,
    problem,
    problems_of,
    scrambled,
)


def costly(costs: list[list[float]]) -> StepCosts:
    """A guide of single steps."""
    return StepCosts(costs=tuple(np.array(row, dtype=np.float64) for row in costs))


@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    actions=st.sampled_from([(4,), (2, 9), (0, 3, 7), (1, 2, 5, 6)]),
    proposals=st.sampled_from([1, 2, 5, 20, 1000]),
    refinements=st.sampled_from([0, 1, 4, 1000]),
    top_k=st.integers(1, 8),
    count=st.integers(1, 3),
    rounds=st.sampled_from([0, 1, 20]),
    starts=st.sampled_from([1, 3]),
)
def test_invariants(data, horizon, actions, proposals, refinements, top_k, count, rounds, starts):
    problems = [data.draw(problems_of(horizon, actions, goal=goal)) for goal in range(count)]
    all_of_them = [everything(one, horizon, scrambled) for one in problems]
    dummy = DummyField(horizon, scrambled)
    search = GuidedSearch(
        proposals=proposals, starts=starts, refinements=refinements, rounds=rounds
    )
    if not all(all_of_them):
        with pytest.raises(ConfigError):
            search.search(dummy, problems, top_k)
        assert not dummy.nodes
        return
    found = search.search(dummy, problems, top_k)
    assert len(set(dummy.leaves)) == len(dummy.leaves)  # nothing is evaluated twice
    for goal, (plans, expected) in enumerate(zip(found, all_of_them, strict=True)):
        asked = [sequence for _, one, sequence in dummy.leaves if one == goal]
        assert_consistent(plans, expected)
        assert {sequence for _, sequence, _ in expected} >= set(asked)
        assert listed(plans) == [one for one in expected if one[1] in asked][:top_k]
        assert plans.evaluated.leaves == len(asked)
        assert plans.evaluated.token_forwards == 1 + 2 * sum(
            one == goal for _, one, _ in dummy.nodes
        )
        assert len(asked) >= min(max(proposals, top_k), len(expected))
        assert len(plans) == min(top_k, len(expected))
        if plans.exact:
            assert len(asked) == len(expected)
        if max(proposals, top_k) >= len(expected):
            assert plans.exact


@given(
    data=st.data(), horizon=st.integers(1, 4), size=st.integers(2, 4), proposals=st.integers(1, 30)
)
def test_unrefined_is_the_guide_rescored(data, horizon, size, proposals):
    actions = tuple(range(3, 3 + size))
    one = data.draw(problems_of(horizon, actions))
    allowed = {sequence for _, sequence, _ in everything(one, horizon, scrambled)}
    if not allowed:
        return
    dummy = DummyField(horizon, scrambled)
    (plans,) = GuidedSearch(proposals=proposals, refinements=0).search(dummy, [one], proposals)
    guide = one.guide or one.objective.costs or StepCosts.free(horizon, size)
    costs = {
        sequence: chain_cost(guide, tuple(action - 3 for action in sequence))
        for sequence in allowed
    }
    asked = {sequence for _, _, sequence in dummy.leaves}
    assert sorted(costs[sequence] for sequence in asked) == sorted(costs.values())[:proposals]
    assert {tuple(row) for row in plans.actions.tolist()} == asked


@given(
    horizon=st.integers(1, 5),
    size=st.integers(2, 5),
    seed=st.integers(0, 10**6),
    starts=st.sampled_from([1, 4]),
    refinements=st.sampled_from([1, 8]),
)
def test_additive_energies_are_solved_from_the_worst_start(
    horizon, size, seed, starts, refinements
):
    """The estimate from single changes is exact then."""
    costs = np.random.default_rng(seed).permuted(np.tile(np.arange(size), (horizon, 1)), axis=1)
    worst = costly((size - 1 - costs).tolist())
    dummy = DummyField(
        horizon, lambda _, __, row: sum(int(costs[step, action]) for step, action in enumerate(row))
    )
    search = GuidedSearch(proposals=1, starts=starts, refinements=refinements)
    (plans,) = search.search(dummy, [problem(0, range(size), guide=worst)], 1)
    assert dummy.leaves[0][2] == tuple(costs.argmax(axis=1).tolist())
    assert plans.actions.tolist() == [costs.argmin(axis=1).tolist()]
    assert plans.energies.tolist() == [0]


def test_combinations_reach_what_single_changes_and_swaps_do_not():
    """(1, 1, 1) is good, (0, 0, 0) a local optimum, and all that lies between them is worse."""

    def energy(_, __, row):
        return (0.0, 3.0, 5.0, -1.0)[sum(row)]

    for refinements, best in ((1, [0, 0, 0]), (8, [1, 1, 1])):
        search = GuidedSearch(proposals=1, starts=1, refinements=refinements)
        (plans,) = search.search(DummyField(3, energy), [problem(0, [0, 1])], 1)
        assert plans.actions.tolist() == [best]


def test_combinations_are_estimated_under_the_whole_objective():
    chain = StepCosts(
        costs=(
            np.array([0.0, 3.0, 10.0]),
            *[np.array([[0.0, 2.5, 10.0], [2.5, 0.0, 10.0], [10.0] * 3])] * 3,
        )
    )
    one = problem(
        0,
        [0, 1, 2],
        objective=Objective(temperature=0.25, costs=chain),
        guide=costly([[0, 1, 2]] * 4),
    )
    dummy = DummyField(4, lambda _, __, row: -0.25 * sum(row))
    (plans,) = GuidedSearch(proposals=1, starts=1, refinements=1).search(dummy, [one], 1)
    assert plans.actions.tolist() == [[1, 1, 1, 1]]
    assert listed(plans) == everything(one, 4, dummy.function)[:1]
    assert plans.evaluated.leaves < 3**4


def near(start: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    """A sequence and all that differ from it in one step or by a swap of two."""
    found = {
        (*start[:step], place, *start[step + 1 :])
        for step, place in itertools.product(range(len(start)), range(size))
    }
    for one, other in itertools.combinations(range(len(start)), 2):
        swapped = list(start)
        swapped[one], swapped[other] = start[other], start[one]
        found.add(tuple(swapped))
    return found


@given(start=st.tuples(*[st.integers(0, 3)] * 4), starts=st.integers(1, 3))
def test_neighbours_of_the_best_are_single_changes_and_swaps(start, starts):
    """The starts are the better ones of the proposals, which lie around `start`, ties by ids."""
    guide = costly([[float(place != wanted) for place in range(4)] for wanted in start])
    dummy = DummyField(4, lambda _, __, row: float(row != start))
    search = GuidedSearch(proposals=13, starts=starts, refinements=1, rounds=1)
    search.search(dummy, [problem(0, range(4), guide=guide)], 1)
    proposed = [row for _, _, row in dummy.leaves[:13]]
    assert set(proposed) == {
        row
        for row in itertools.product(range(4), repeat=4)
        if sum(one != other for one, other in zip(row, start, strict=True)) < 2
    }
    chosen = sorted(proposed, key=lambda row: (row != start, row))[:starts]
    assert {row for _, _, row in dummy.leaves} == set(proposed).union(
        *(near(row, 4) for row in chosen)
    )


def test_the_budget_bounds_what_is_spent():
    one, horizon, size = problem(3, range(8)), 5, 8
    around = size * horizon * (horizon + 1)  # token forwards of all neighbours of a sequence
    spent = {}
    for tokens in (2 * around, 20 * around, 1000 * around):
        dummy = DummyField(horizon, scrambled)
        search = GuidedSearch(budget_gflop=tokens * dummy.flops_per_token / 1e9)
        (plans,) = search.search(dummy, [one], 1)
        spent[tokens] = plans.evaluated.token_forwards
        assert spent[tokens] <= tokens + 2 * around
        assert len(plans) == 1
    assert spent[2 * around] < min(spent[20 * around], spent[1000 * around])
