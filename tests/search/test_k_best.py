"""Listing the sequences of least cost, beside a list of everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.field.fields import IncrementalField
from cefito.search import Constraints, NaiveSearch, Objective, SearchCost, StepCosts
from cefito.search.beam import KBestSearch
from random_fields import random_field

from .conftest import (
    DummyField,
    Impatient,
    chains,
    constraint_sets,
    everything,
    listed,
    problem,
    scrambled,
)

NOTHING = 1e9  # the temperature of an energy that weighs nothing


@st.composite
def likely_problems(draw, horizon, actions, *, goal=0):
    size = len(actions)
    chain = draw(chains(horizon, size, infinite=draw(st.booleans())))
    constrained = draw(st.booleans())
    return problem(
        goal,
        actions,
        constraints=draw(constraint_sets(horizon, actions)) if constrained else Constraints(),
        objective=Objective(
            temperature=NOTHING, costs=chain, offset=draw(st.sampled_from([0.0, 2.5]))
        ),
    )


def by_cost(one, horizon):
    """All allowed sequences as (score, actions, score) without a part of the energy."""
    found = everything(one, horizon, scrambled)
    costs = [
        (round(score - energy / one.objective.temperature, 6), sequence)
        for score, sequence, energy in found
    ]
    return sorted((cost, sequence, cost) for cost, sequence in costs)


@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    actions=st.sampled_from([(4,), (2, 9), (0, 3, 7), (1, 2, 5, 6)]),
    top_k=st.integers(1, 9),
)
def test_the_cheapest_of_a_list_of_everything(data, horizon, actions, top_k):
    one = data.draw(likely_problems(horizon, actions))
    expected = by_cost(one, horizon)
    field = DummyField(horizon, scrambled)
    if not expected:
        with pytest.raises(ConfigError):
            KBestSearch().search(field, [one], top_k)
        return
    (plans,) = KBestSearch().search(field, [one], top_k)
    assert plans.exact
    # of those that cost as much as the last, any may be listed
    assert [score for score, _, _ in listed(plans)] == [score for score, _, _ in expected[:top_k]]
    assert set(listed(plans)) <= set(expected)
    assert listed(plans) == sorted(listed(plans))
    assert plans.evaluated == SearchCost(0, 0)
    assert not field.leaves


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(),
        Constraints(no_repeats=True, forbidden=(2,)),
        Constraints(required=(5,), before=((5, 1),)),
        Constraints(pinned=((2, 7),), no_repeats=True),
    ],
)
def test_as_a_naive_search_of_an_energy_that_weighs_nothing(constraints):
    incremental = IncrementalField(random_field(4, actions=8, observation_dim=1))
    rng = np.random.default_rng(0)
    actions = (1, 2, 5, 7)
    problems = [
        problem(
            goal,
            actions,
            constraints=constraints,
            objective=Objective(
                temperature=NOTHING,
                costs=StepCosts(
                    costs=tuple(rng.standard_normal(shape) for shape in (4, (4, 4), (4, 4)))
                ),
                offset=goal,
            ),
        )
        for goal in (0.5, 1.5, 2.5)
    ]
    ours = KBestSearch().search(incremental, problems, 5)
    theirs = NaiveSearch().search(incremental, problems, 5)
    for one, other in zip(ours, theirs, strict=True):
        assert one.exact
        assert one.actions.tolist() == other.actions.tolist()
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6)
        assert one.energies.tolist() == one.scores.tolist()


def several():
    return [
        problem(goal, [0, 2, 5], objective=Objective(temperature=NOTHING)) for goal in range(70)
    ]


def test_problems_stay_in_order_and_progress_adds_up():
    watched = Impatient()
    found = KBestSearch().search(DummyField(2, scrambled), several(), 2, watched.watch)
    assert watched.advanced == 70
    for plans in found:
        assert plans.actions.tolist() == [[0, 0], [0, 2]]  # nothing costs anything: by ids
    assert KBestSearch().search(DummyField(2, scrambled), [], 2) == []


def test_stopped_it_lists_nothing_more():
    watched = Impatient(1)
    found = KBestSearch().search(DummyField(2, scrambled), several(), 2, watched.watch)
    assert [len(plans) for plans in found] == [2] + [0] * 69
    assert [plans.exact for plans in found] == [True] + [False] * 69
    assert watched.advanced == 1
    assert found[-1].actions.shape == (0, 2)
    assert found[-1].evaluated == SearchCost(0, 0)


def test_refusals():
    with pytest.raises(ConfigError, match="top_k is 0; expected at least 1"):
        KBestSearch().search(DummyField(2, scrambled), several(), 0)
    field = DummyField(2, scrambled)
    bad = problem(0, [1, 2], constraints=Constraints(required=(3,)))
    with pytest.raises(ConfigError, match="action 3 is required"):
        KBestSearch().search(field, [*several(), bad], 1)
    assert not field.nodes
