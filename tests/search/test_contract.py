"""What every search promises. A search that is registered is held to it here, and needs no more.

The answers are compared with a list of everything, on dummy fields whose energies are whole
numbers, so that they are equal to the bit, with many ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cefito.errors import ConfigError, RunError
from cefito.field.fields import IncrementalField
from cefito.planners.base_planner import check_finite
from cefito.search import (
    SEARCHES,
    Constraints,
    ExhaustiveSearch,
    Plans,
    Problem,
    SearchConfig,
    make_search,
)
from cefito.search.base import Search, Searchable, SpaceSize, Watch, components_of
from cefito.search.problem import Best, SearchCost, Space, compiled
from cefito.search.settings import SearchEntry, search_settings
from random_fields import random_field

from .conftest import (
    DummyComposite,
    DummyField,
    Impatient,
    assert_consistent,
    direct_energies,
    everything,
    listed,
    problem,
    problems_of,
    scrambled,
)
from .naive import naive_search

TOY = "toy"
GENEROUS: dict[str, object] = {}
# nothing is affordable, little is kept, one child at a time
TIGHT = {"memory_mib": 1e-6, "budget_gflop": 0, "proposals": 3, "starts": 1, "refinements": 2}
SCREENED = {"screening": "on"}


class ToySearch(Search):
    """The first `top_k` allowed sequences by action ids, whatever their energies."""

    def cost_bound(self, field: Searchable, size: SpaceSize, top_k: int) -> SearchCost:
        leaves = min(top_k, size.leaves)
        return SearchCost(leaves * (2 * field.horizon + 1) * len(components_of(field)), leaves)

    def search(
        self,
        field: Searchable,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        found = []
        for space in compiled(problems, field.horizon, top_k):
            sequences = np.indices((space.size,) * field.horizon).reshape(field.horizon, -1).T
            ranks = np.flatnonzero(space.allows(sequences))[:top_k]
            initial, goal = (
                torch.from_numpy(part).expand(len(ranks), -1)
                for part in (space.problem.initial, space.problem.goal)
            )
            actions = torch.tensor(space.problem.actions)[torch.from_numpy(sequences[ranks])]
            energies = field.energy(initial, goal, actions).numpy()
            best = Best(top_k)
            best.add(energies, ranks, space.scores(energies, sequences[ranks]))
            cost = self.cost_bound(field, SpaceSize(1, (len(ranks),), free=True), len(ranks))
            found.append(best.plans(space.problem, field.horizon, cost, exact=False))
            watch.advance(1)
        return found


@pytest.fixture(params=[*SEARCHES, TOY])
def name(request, monkeypatch) -> str:
    """The name of each search, and of a toy one that is registered as any other is."""
    if request.param == TOY:
        monkeypatch.setitem(SEARCHES, TOY, SearchEntry(ToySearch))
    return request.param


@pytest.fixture(params=[GENEROUS, TIGHT, SCREENED], ids=["generous", "tight", "screened"])
def search(name, request) -> Search:
    return make_search(SearchConfig(method=name, **request.param))


def drawn(strategies, count: int, seed: int = 0) -> list:
    """Some examples of a strategy, the same every time."""
    examples = []

    @settings(database=None, derandomize=True, max_examples=4 * count, deadline=None)
    @given(strategies)
    def collect(example):
        examples.append(example)

    collect()
    return [examples[index] for index in np.random.default_rng(seed).permutation(len(examples))]


def solvable(horizon: int, actions: Sequence[tuple[int, ...]]) -> list[Problem]:
    """Problems of all kinds: constraints, forbidden transitions, temperatures, guides."""
    found = []
    for number, allowed in enumerate(actions):
        for one in drawn(problems_of(horizon, allowed, goal=number), 3):
            if everything(one, horizon, scrambled):
                found.append(one)
    return found[:15]


SEVERAL = solvable(3, [(0, 1, 3), (2, 5), (1, 2, 3, 4), (7,)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    actions=st.sampled_from([(4,), (2, 9), (0, 3, 7), (1, 2, 5, 6)]),
    top_k=st.integers(1, 9),
)
def test_answers_are_those_of_a_list_of_everything(name, search, data, horizon, actions, top_k):
    one = data.draw(problems_of(horizon, actions))
    expected = everything(one, horizon, scrambled)
    field = DummyField(horizon, scrambled)
    if not expected:
        with pytest.raises(ConfigError):
            search.search(field, [one], top_k)
        return
    (plans,) = search.search(field, [one], top_k)
    assert_consistent(plans, expected)
    assert 1 <= len(plans) <= top_k
    assert plans.exact or not SEARCHES[name].exact or getattr(search, "screening", "") == "on"
    if plans.exact:
        assert listed(plans) == expected[:top_k]
    assert plans.actions.shape == (len(plans), horizon)
    assert (plans.actions.dtype, plans.energies.dtype) == (np.int64, np.float64)


def test_a_problem_alone_has_the_answer_that_it_has_among_others(search):
    together = search.search(DummyField(3, scrambled), SEVERAL, 4)
    assert len(together) == len(SEVERAL) > 10
    for one, plans in zip(SEVERAL, together, strict=True):
        (alone,) = search.search(DummyField(3, scrambled), [one], 4)
        assert listed(alone) == listed(plans)
        assert (alone.exact, alone.evaluated) == (plans.exact, plans.evaluated)


def test_problems_compiled_beforehand_have_the_same_answers(search, monkeypatch):
    plain = search.search(DummyField(3, scrambled), SEVERAL, 4)
    spaces = [Space(one, 3) for one in SEVERAL]
    monkeypatch.setattr(Space, "__init__", None)  # nothing is compiled twice
    again = search.search(DummyField(3, scrambled), spaces, 4)
    assert [listed(plans) for plans in again] == [listed(plans) for plans in plain]


def test_progress_adds_up_to_the_number_of_problems(search):
    watched = Impatient()
    search.search(DummyField(3, scrambled), SEVERAL, 2, watched.watch)
    assert watched.advanced == pytest.approx(len(SEVERAL))


@pytest.mark.parametrize("patience", [0, 1, 5, 20])
def test_stopped_it_gives_the_best_met_so_far(search, patience):
    watched, field = Impatient(patience), DummyField(3, scrambled)
    found = search.search(field, SEVERAL, 3, watched.watch)
    assert len(found) == len(SEVERAL)
    assert watched.advanced <= len(SEVERAL) + 1e-6
    for one, plans in zip(SEVERAL, found, strict=True):
        expected = everything(one, 3, scrambled)
        assert_consistent(plans, expected)
        assert len(plans) <= 3
        if plans.exact:
            assert listed(plans) == expected[:3]


FIELDS = {
    "one component": lambda: DummyField(3, scrambled),
    "backward and forward": lambda: DummyComposite(3, "b", "f"),
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("top_k", [1, 20])
def test_it_costs_at_most_what_its_bound_says(search, field, top_k):
    free = [problem(0, range(size)) for size in (1, 2, 5)]
    for one in (*SEVERAL, *free):
        size = SpaceSize.of(one.actions, 3, one.constraints)
        bound = search.cost_bound(field(), size, top_k)
        (plans,) = search.search(field(), [one], top_k)
        assert plans.evaluated.token_forwards <= bound.token_forwards
        assert plans.evaluated.leaves <= bound.leaves


def test_the_bound_of_an_exact_search_is_its_cost():
    for dummy in (DummyField(3, scrambled), DummyComposite(3, "b", "f")):
        search, size = ExhaustiveSearch(), SpaceSize.of(range(4), 3)
        (plans,) = search.search(dummy, [problem(0, range(4))], 2)
        assert plans.evaluated == search.cost_bound(dummy, size, 2)


def test_what_it_evaluated_is_counted(search):
    field = DummyField(3, scrambled)
    for one in SEVERAL:
        field.nodes.clear()
        (plans,) = search.search(field, [one], 2)
        assert plans.evaluated.leaves == len(set(field.leaves)) >= len(plans)
        assert plans.evaluated.token_forwards >= 2 * plans.evaluated.leaves


def test_nothing_to_search(search):
    assert search.search(DummyField(2, scrambled), [], 3) == []


@pytest.mark.parametrize(
    "bad",
    [
        problem(0, []),
        problem(0, [2, 1]),
        problem(0, [1, 2], constraints=Constraints(required=(3,))),
        problem(0, [1, 2], constraints=Constraints(before=((1, 2),), pinned=((1, 2), (2, 1)))),
    ],
)
def test_a_problem_without_an_answer_is_refused_before_any_work(search, bad):
    field = DummyField(2, scrambled)
    with pytest.raises(ConfigError):
        search.search(field, [problem(0, [1, 2]), bad], 1)
    assert not field.nodes


def test_no_plans_at_all_cannot_be_asked_for(search):
    with pytest.raises(ConfigError, match=r"top_k is 0; .*1"):
        search.search(DummyField(2, scrambled), [problem(0, [1, 2])], 0)


@pytest.mark.parametrize("none", [np.nan, np.inf, -np.inf])
def test_one_energy_that_is_no_number_is_told(search, none):
    actions = [1, 2, 3]

    def energy(*given):
        return none if given[-1][-1] == 1 else float(sum(given[-1]))

    whole, broken = DummyField(2, lambda *given: float(sum(given[-1]))), DummyField(2, energy)
    (plans,) = search.search(whole, [problem(0, actions)], 9)
    assert plans.finite
    (plans,) = search.search(broken, [problem(0, actions)], 9)
    assert not plans.finite
    assert not plans.exact
    with pytest.raises(RunError, match=r"query 7 .* are NaN or infinite"):
        check_finite(plans, 7)


def network(count: int) -> tuple[IncrementalField, list[Problem]]:
    """A small field with random weights, and problems for it."""
    observations = np.random.default_rng(1).normal(size=(count, 2, 12)).astype(np.float32)
    problems = [
        replace(one, initial=initial, goal=goal)
        for one, (initial, goal) in zip(SEVERAL, observations, strict=False)
    ]
    return IncrementalField(random_field(4, actions=8, observation_dim=12)), problems


def test_threads_may_share_a_search_and_a_field(search):
    field, problems = network(4)
    alone = [search.search(field, [one], 3)[0] for one in problems]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda one: search.search(field, [one], 3)[0], 3 * problems))
    for plans, others in zip(3 * alone, together, strict=True):
        assert listed(plans) == listed(others)
        assert (plans.exact, plans.evaluated) == (others.exact, others.evaluated)


def test_on_a_network(search):
    incremental, problems = network(4)
    best = naive_search(incremental, problems, 3)
    found = search.search(incremental, problems, 3)
    for one, plans, reference in zip(problems, found, best, strict=True):
        direct = direct_energies(incremental, one, plans)
        np.testing.assert_allclose(plans.energies, direct, rtol=1e-4, atol=1e-5)
        if plans.exact:
            assert np.array_equal(plans.actions, reference.actions)


def test_only_settings_that_it_reads_are_accepted(name):
    reads = set(SEARCHES[name].reads)
    for setting in reads:
        value = getattr(SearchConfig(), setting)
        assert search_settings(SearchConfig(), method=name, **{setting: value}).method == name
    for setting in {each for entry in SEARCHES.values() for each in entry.reads} - reads:
        value = getattr(SearchConfig(), setting)
        with pytest.raises(ConfigError, match=f"'{name}'.*'{setting}'"):
            search_settings(SearchConfig(), method=name, **{setting: value})
