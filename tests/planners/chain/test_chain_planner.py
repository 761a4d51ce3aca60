"""The chain as a planner, beside a list of all sequences of all tasks."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cefito.errors import ConfigError
from cefito.planners.chain.model import ChainModel
from cefito.planners.chain.planner import ChainPlanner
from cefito.planners.queries import Queries
from cefito.search import Constraints
from cefito.search.constraints import UNCONSTRAINED
from cefito.search.problem import Space
from cefito.search.step_costs import Cheapest
from planners.random_chains import every_score, random_chain
from search.conftest import satisfies

ACTIONS = ((0, 2, 5), (1, 2, 3, 5), (0, 2), (4,))
CONSTRAINTS = [
    Constraints(no_repeats=True),
    Constraints(required=(2,)),
    Constraints(forbidden=(5, 0)),
    Constraints(pinned=((2, 2),), no_repeats=True),
    Constraints(required=(2,), before=((2, 5), (0, 2))),
    Constraints(required=(4,)),
]


@pytest.fixture(scope="module")
def planner():
    """Two members with random weights, whose scores are far from even."""
    networks = tuple(random_chain(ACTIONS, width=3, seed=seed, scale=6) for seed in range(2))
    return ChainPlanner(ChainModel(networks, 1.5))


@pytest.fixture(scope="module")
def queries():
    initial, goal = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    return Queries(initial=initial, goal=goal)


@cache
def scores_of(planner, queries, row):
    return every_score(planner.model, queries, row, ACTIONS)


def everything(planner, queries, row, task=None, constraints=UNCONSTRAINED):
    """Allowed sequences, likeliest first: minus log-probability over tasks, ids, likeliest task."""
    every = scores_of(planner, queries, row)
    logs = {pair: score for pair, score in every.items() if task in (None, pair[0])}
    total = math.log(math.fsum(math.exp(value) for value in logs.values()))
    pairs = defaultdict(list)
    for (number, sequence), value in logs.items():
        if satisfies(sequence, constraints):
            pairs[sequence].append((value, number))
    return sorted(
        (total - math.log(math.fsum(math.exp(value) for value, _ in own)), sequence, max(own)[1])
        for sequence, own in pairs.items()
    )


def check(plans, expected, top_k):
    assert len(plans) == min(top_k, len(expected))
    energies, *pairs = zip(*expected[:top_k], strict=True)
    assert [*zip(map(tuple, plans.actions.tolist()), plans.tasks.tolist(), strict=True)] == [
        *zip(*pairs, strict=True)
    ]
    np.testing.assert_allclose(plans.scores, energies, atol=1e-4)
    np.testing.assert_array_equal(plans.scores, plans.energies)
    assert plans.exact


@pytest.mark.parametrize("top_k", [1, 5, 40, 1000])
def test_the_likeliest_over_all_tasks(planner, queries, top_k):
    for row, plans in enumerate(planner.plan(queries, top_k)):
        expected = everything(planner, queries, row)
        assert len(expected) < sum(len(actions) ** 3 for actions in ACTIONS)
        check(plans, expected, top_k)
        assert plans.searched == 4
    assert len({int(plans.tasks[0]) for plans in planner.plan(queries, 1)}) > 1


@pytest.mark.parametrize("top_k", [1, 5, 1000])
def test_given_tasks(planner, queries, top_k):
    tasks = np.array([0, 1, 2, 3, 1, 0])
    given = replace(queries, tasks=tasks)
    assert planner.predict_tasks(given).tolist() == tasks.tolist()
    for row, plans in enumerate(planner.plan(given, top_k)):
        expected = everything(planner, queries, row, int(tasks[row]))
        check(plans, expected, top_k)
        assert plans.searched == 1
        if top_k == 1000:
            assert np.exp(-plans.scores).sum() == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("top_k", [1, 5, 1000])
def test_constraints(planner, queries, constraints, top_k):
    for row, plans in enumerate(planner.plan(queries, top_k, constraints=constraints)):
        check(plans, everything(planner, queries, row, None, constraints), top_k)
    if constraints.required != (4,):
        given = queries.with_task(1)
        found = planner.plan(given, top_k, constraints=constraints)
        for row, plans in enumerate(found):
            check(plans, everything(planner, queries, row, 1, constraints), top_k)


def test_constraints_that_nothing_satisfies(planner, queries):
    with pytest.raises(ConfigError, match=r"action (1|4) is required"):
        planner.plan(queries, 1, constraints=Constraints(required=(1, 4)))
    with pytest.raises(ConfigError, match=r"action 4 .* not an action"):
        planner.plan(queries.with_task(0), 1, constraints=Constraints(required=(4,)))
    with pytest.raises(ConfigError, match="pinned to step 4"):
        planner.plan(queries, 1, constraints=Constraints(pinned=((4, 0),)))


def test_plans_that_the_list_may_lack_are_not_exact(planner, queries, monkeypatch):
    cheapest = Space.cheapest

    def cut(self, guide, count):
        found = cheapest(self, guide, count)
        return Cheapest(found.sequences, found.costs, found.bound, complete=False)

    monkeypatch.setattr(Space, "cheapest", cut)
    for plans in planner.plan(queries, 2, constraints=CONSTRAINTS[0]):
        assert not plans.exact


def test_predicted_tasks_sum_over_all_sequences(planner, queries):
    predicted = planner.predict_tasks(queries)
    for row, task in enumerate(predicted):
        sums = np.zeros(4)
        for (number, _), score in scores_of(planner, queries, row).items():
            sums[number] += math.exp(score)
        assert task == sums.argmax()


def test_probabilities_are_sums_over_tasks(planner, queries):
    tasks = np.exp(planner.model.log_tasks(queries))
    for row, plans in enumerate(planner.plan(queries, 1000)):
        expected = [math.exp(-energy) for energy, _, _ in everything(planner, queries, row)]
        np.testing.assert_allclose(plans.probabilities, expected, rtol=1e-4)
        assert plans.probabilities.sum() == pytest.approx(1)
        np.testing.assert_allclose(plans.task_probabilities, tasks[row, plans.tasks], rtol=1e-5)
        assert plans.searched_mass == 1
    for plans in planner.plan(queries.with_task(1), 1000):
        assert plans.probabilities.sum() == pytest.approx(1, rel=1e-4)
        np.testing.assert_allclose(plans.task_probabilities, 1)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_under_constraints_probabilities_are_shares_of_what_is_allowed(
    planner, queries, constraints
):
    shares = np.exp(planner.model.log_tasks(queries))
    for row, plans in enumerate(planner.plan(queries, 2, constraints=constraints)):
        pairs = sum(
            math.exp(-energy) * shares[row, task]
            for task in range(4)
            for energy, _, _ in everything(planner, queries, row, task, constraints)
        )
        np.testing.assert_allclose(plans.probabilities, np.exp(-plans.scores) / pairs, rtol=1e-3)
        assert plans.searched_mass is None
