"""Searches that look through sequences in bfloat16 and decide in float32."""

from typing import Any

import numpy as np
import pytest
import torch

from cefito.field.fields import IncrementalField, incremental_field, make_field
from cefito.planners.cefito.fit import validation_searches
from cefito.search import Constraints, ExhaustiveSearch, GuidedSearch, Objective, StepCosts
from cefito.search.guided import AutoSearch
from random_fields import SMALL, random_field, randomise

from .conftest import DummyField, direct_energies, everything, listed, problem, random_problems

SEARCHES = {"exhaustive": ExhaustiveSearch, "guided": GuidedSearch}


def spread(initial, goal, sequence):
    """An energy without structure and without ties, 0 to 64, exact in single precision."""
    number = int(sum(digit * 10**place for place, digit in enumerate(sequence)))
    return (number * 7919 + int(initial) * 31 + int(goal) * 17) % 2**16 / 1024


def off_by(most):
    """An error without structure, at most so much either way."""

    def error(initial, goal, sequence):
        return most * np.sin(1e3 * spread(goal, initial, sequence[::-1]))

    return error


@pytest.mark.parametrize("name", SEARCHES)
def test_float32_orders_what_bfloat16_confuses(name):
    for goal in range(5):
        one = problem(goal, range(10))
        every = everything(one, 3, spread)
        dummy = DummyField(3, spread, error=off_by(0.5))
        settings = {} if name == "exhaustive" else {"budget_gflop": 1e6, "proposals": 800}
        screened = SEARCHES[name](screening="on", **settings)
        (plans,) = screened.search(dummy, [one], 10)
        if name == "exhaustive":
            assert listed(plans) == every[:10]
        assert set(listed(plans)) <= set(every)  # of float32
        assert not plans.exact
        assert 0.5 < plans.margin <= 1.5
        assert plans.evaluated.leaves <= 1000
        (coarse,) = ExhaustiveSearch().search(dummy.coarse, [one], 10)
        assert coarse.actions.tolist() != [list(row) for _, row, _ in every[:10]]


def test_only_what_is_within_the_margin_is_evaluated_again():
    one, dummy = problem(0, range(10)), DummyField(3, spread, error=off_by(0.01))
    (plans,) = ExhaustiveSearch(screening="on").search(dummy, [one], 1)
    assert listed(plans) == everything(one, 3, spread)[:1]
    again = len(dummy.leaves) - 1000
    assert 12 <= again <= 60
    assert 2 * again < plans.evaluated.token_forwards - 2221 <= 1 + 6 * again


def test_an_error_that_no_other_sequence_has_is_not_seen():
    """The margin is no bound, and nothing says exact."""
    one = problem(0, range(10))
    best = everything(one, 3, spread)[0][1]
    dummy = DummyField(3, spread, error=lambda *row: 30.0 * (row[2] == best))
    (plans,) = ExhaustiveSearch(screening="on").search(dummy, [one], 1)
    assert tuple(plans.actions[0]) != best
    assert (plans.exact, plans.margin) == (False, 0.0)


def test_guided_search_of_all_sequences_is_exact():
    one = problem(0, range(4), constraints=Constraints(no_repeats=True))
    dummy = DummyField(3, spread, error=off_by(30.0))
    (plans,) = GuidedSearch(screening="on").search(dummy, [one], 5)
    assert listed(plans) == everything(one, 3, spread)[:5]
    assert (plans.exact, plans.margin) == (True, None)


def test_auto_screens_guided_search_alone_and_where_it_pays():
    one = problem(0, range(10))
    for pays in (False, True):
        dummy = DummyField(3, spread, error=off_by(0.5), coarse_pays=pays)
        (exhaustive,) = ExhaustiveSearch().search(dummy, [one], 3)
        assert (exhaustive.exact, exhaustive.margin) == (True, None)
        (guided,) = GuidedSearch().search(dummy, [one], 3)
        assert (guided.margin is not None) == pays
        (guided,) = GuidedSearch(screening="off").search(dummy, [one], 3)
        assert guided.margin is None
        (within,) = AutoSearch().search(dummy, [one], 3)
        (beyond,) = AutoSearch(budget_gflop=0).search(dummy, [one], 3)
        assert within.exact
        assert (beyond.margin is not None) == pays


def test_whole_trainings_choose_epochs_by_screened_searches(monkeypatch):
    field = random_field()
    given = {"candidates": 100, "memory_mib": 64}
    exhaustive, guided = validation_searches(field, **given, screening="auto")
    assert (exhaustive.screening, guided.screening) == ("off", "auto")
    monkeypatch.setattr(IncrementalField, "coarse_pays", True)
    assert validation_searches(field, **given, screening="auto")[0].screening == "on"
    assert validation_searches(field, **given, screening="off")[0].screening == "off"


@pytest.mark.parametrize("directions", ["forward", "both"])
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("kind", ["energy", "costs", "constraints"])
def test_on_a_network(name, kind, directions):
    """Random fields, whose energies differ by more than the errors of bfloat16 of a few."""
    sizes = {"observation_dim": 20, "action_count": 7, "horizon": 4}
    config = random_field(width=32, action_dim=8).config
    made = make_field(config=config.model_copy(update={"directions": directions}), **sizes)
    randomise(made, torch.Generator().manual_seed(0))
    field = incremental_field(made.eval())
    generator, more = np.random.default_rng(0), dict[str, Any]()
    if kind == "costs":
        costs = tuple(generator.random((7,) * min(step + 1, 3)) for step in range(4))
        more["objective"] = Objective(0.5, StepCosts(costs=costs), 1.5)
    if kind == "constraints":
        more["constraints"] = Constraints(required=(3,), forbidden=(0,))
    problems = random_problems(1, [range(7)] * 3, **more)
    ours, theirs = (
        SEARCHES[name](screening=screening).search(field, problems, 8)
        for screening in ("on", "off")
    )
    for one, screened, plain in zip(problems, ours, theirs, strict=True):
        direct = direct_energies(field, one, screened)
        np.testing.assert_allclose(screened.energies, direct, rtol=1e-4)
        assert screened.scores[0] <= plain.scores[0] + 1e-5
        assert screened.margin is None or screened.margin > 0
        if name == "exhaustive":
            np.testing.assert_allclose(screened.scores, plain.scores, rtol=2e-5)


def test_energies_in_bfloat16_are_near_and_differ():
    wide: Any = SMALL | {"width": 32}
    field = IncrementalField(random_field(horizon=3, actions=8, **wide))
    problems = random_problems(0, [range(8)], 24)
    fine, coarse = (
        ExhaustiveSearch().search(one, problems, 512)[0] for one in (field, field.coarse)
    )
    by_plan = dict(zip(map(tuple, coarse.actions.tolist()), coarse.energies, strict=True))
    near = np.array([by_plan[tuple(row)] for row in fine.actions.tolist()])
    error = np.abs(near - fine.energies) / fine.energies
    assert 1e-4 < error.max() < 0.1
    listed_again = GuidedSearch().search(field.coarse, problems, 5)[0]
    np.testing.assert_allclose(
        listed_again.energies,
        [by_plan[tuple(row)] for row in listed_again.actions.tolist()],
        rtol=0.02,
    )
