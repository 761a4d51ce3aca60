import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.search import Constraints, Objective, Problem, StepCosts
from cefito.search.problem import Space, compiled

from .conftest import chain_cost, everything, problem, problems_of


def allowed_places(one: Problem, horizon: int) -> list[tuple[int, ...]]:
    return sorted(
        tuple(one.actions.index(action) for action in sequence)
        for _, sequence, _ in everything(one, horizon, lambda *_: 0)
    )


@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    actions=st.sampled_from([(4,), (2, 9), (0, 3, 7), (1, 2, 5, 6)]),
)
def test_what_is_allowed(data, horizon, actions):
    one = data.draw(problems_of(horizon, actions))
    size, valid = len(actions), allowed_places(one, horizon)
    if not valid:
        with pytest.raises(ConfigError):
            Space(one, horizon)
        return
    space = Space(one, horizon)
    every = np.array(list(itertools.product(range(size), repeat=horizon)))
    allowed = space.allows(every)
    assert [tuple(row) for row in every[allowed].tolist()] == valid
    assert not space.free or allowed.all()
    chain = one.objective.costs
    assert space.free == (not one.constraints)
    costs = [0.0 if chain is None else chain_cost(chain, row) for row in valid]
    energies = np.arange(len(valid), dtype=np.float32)
    scores = space.scores(energies, np.array(valid))
    if one.objective.pure:
        assert scores is None
    else:
        assert scores.dtype == np.float64
        assert scores.tolist() == [
            energy / one.objective.temperature + cost + one.objective.offset
            for energy, cost in enumerate(costs)
        ]

    guided = space.cheapest(space.guide, len(every) + 1)
    assert sorted(map(tuple, guided.sequences.tolist())) == valid
    assert guided.complete

    for length in range(horizon):
        prefixes = sorted({row[:length] for row in valid})
        children = space.children(np.array(prefixes, dtype=np.int64).reshape(len(prefixes), length))
        for prefix, row in zip(prefixes, children.tolist(), strict=True):
            lead_on = {places[length] for places in valid if places[:length] == prefix}
            found = {place for place, may in enumerate(row) if may}
            assert lead_on == found


def test_guide_defaults():
    chain, own = StepCosts(costs=(np.array([1.0, 0.0]),)), StepCosts(costs=(np.array([0.0, 3.0]),))
    assert Space(problem(0, [1, 2]), 1).guide.costs[0].tolist() == [0, 0]
    assert Space(problem(0, [1, 2], objective=Objective(costs=chain)), 1).guide is chain
    assert Space(problem(0, [1, 2], objective=Objective(costs=chain), guide=own), 1).guide is own


def of_costs(costs: StepCosts) -> Problem:
    return problem(0, (1, 2), objective=Objective(costs=costs))


FORBIDDING = StepCosts(costs=(np.zeros(2), np.array([[0.0, np.inf], [0.0, 0.0]])))


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (problem(0, []), r"allowed actions \[\]"),
        (problem(0, [2, 1]), r"allowed actions \[2, 1\]: expected .* ascending"),
        (problem(0, [1, 1]), r"allowed actions \[1, 1\]"),
        (problem(0, [1, 2], objective=Objective(temperature=0)), "temperature 0 .* positive"),
        (problem(0, [1, 2], objective=Objective(temperature=float("nan"))), "temperature nan"),
        (of_costs(StepCosts.free(2, 3)), "objective's costs are for 3 actions and 2 steps"),
        (of_costs(StepCosts.free(3, 2)), "objective's costs are for 2 actions and 3 steps"),
        (problem(0, [1, 2], guide=StepCosts.free(2, 1)), "guide's costs .* 1 actions and 2 steps"),
        (problem(0, [1, 2], constraints=Constraints(required=(3,))), "action 3 is required"),
        (of_costs(FORBIDDING), "the objective's costs are not all finite. Forbid sequences by"),
        (problem(0, [1, 2], guide=FORBIDDING), "the guide's costs are not all finite"),
    ],
)
def test_what_cannot_be_searched(one, message):
    with pytest.raises(ConfigError, match=message):
        compiled([problem(0, [1, 2]), one], 2, 1)


def test_more_sequences_than_can_be_numbered():
    """Searches number sequences by 64 bits, too few for 778 actions and seven steps."""
    Space(problem(0, range(500)), 7)
    with pytest.raises(ConfigError, match="778 actions and 7 steps"):
        Space(problem(0, range(778)), 7)
    Space(problem(0, range(2)), 62)
    with pytest.raises(ConfigError, match="2 actions and 64 steps"):
        Space(problem(0, range(2)), 64)
