"""Searches by their names and settings, and the one that chooses between two."""

import pytest

from cefito.errors import ConfigError
from cefito.search import (
    AutoSearch,
    BeamSearch,
    Constraints,
    ExhaustiveSearch,
    GuidedSearch,
    NaiveSearch,
    SearchConfig,
    make_search,
)
from cefito.search.registry import SEARCHES
from cefito.search.settings import changed_settings, search_settings

from .conftest import DummyField, everything, listed, problem, scrambled


def gflop(size: int, horizon: int, flops_per_token: int = 1000) -> float:
    """One token for the query, two for each node of the tree."""
    return (1 + 2 * sum(size**level for level in range(1, horizon + 1))) * flops_per_token / 1e9


def auto(budget_gflop: float, **guided: int) -> AutoSearch:
    return AutoSearch(
        exhaustive=ExhaustiveSearch(), guided=GuidedSearch(**guided), budget_gflop=budget_gflop
    )


@pytest.mark.parametrize(("size", "horizon"), [(1, 1), (3, 1), (4, 3), (2, 5)])
def test_budget(size, horizon):
    dummy, one = DummyField(horizon, scrambled), problem(0, range(size))
    exact = gflop(size, horizon)
    assert auto(exact * (1 + 1e-9)).affordable(dummy, one)
    assert not auto(exact * (1 - 1e-9)).affordable(dummy, one)
    dearer = DummyField(horizon, scrambled, flops_per_token=1001)
    assert not auto(exact * (1 + 1e-9)).affordable(dearer, one)
    (plans,) = ExhaustiveSearch().search(dummy, [one], 1)
    assert plans.evaluated.token_forwards * dummy.flops_per_token / 1e9 == pytest.approx(exact)


def test_what_constraints_save_is_not_counted():
    dummy, one = (
        DummyField(3, scrambled),
        problem(0, range(4), constraints=Constraints(pinned=((1, 0), (2, 0)))),
    )
    assert not auto(gflop(4, 3) * 0.99).affordable(dummy, one)


def test_exact_within_the_budget_guided_beyond_and_answers_keep_their_places():
    sizes = [2, 5, 3, 5, 1, 4]
    problems = [
        problem(
            goal,
            range(size),
            constraints=Constraints(forbidden=(0,)) if size > 3 else Constraints(),
        )
        for goal, size in enumerate(sizes)
    ]
    dummy = DummyField(3, scrambled)
    found = auto(gflop(3, 3) * 1.001, proposals=6, refinements=0).search(dummy, problems, 6)
    for size, one, plans in zip(sizes, problems, found, strict=True):
        assert plans.exact == (size <= 3)
        assert plans.evaluated.leaves == (size**3 if size <= 3 else 6)
        expected = everything(one, 3, scrambled)
        assert set(listed(plans)) <= set(expected)
        assert not plans.exact or listed(plans) == expected[:6]


@pytest.mark.parametrize(("budget", "leaves"), [(0, 5), (1, 27)])
def test_budgets_of_nothing_and_of_plenty(budget, leaves):
    (plans,) = auto(budget, proposals=5, refinements=0).search(
        DummyField(3, scrambled), [problem(0, [0, 1, 2])], 1
    )
    assert plans.evaluated.leaves == leaves


def test_nothing_to_search():
    assert auto(1).search(DummyField(2, scrambled), [], 1) == []


@pytest.mark.parametrize("budget", [-1, float("nan")])
def test_bad_budget(budget):
    with pytest.raises(ConfigError, match="GFLOP; expected a number of at least 0"):
        auto(budget)


def made_by(method: str, **settings: object):
    return make_search(SearchConfig(method=method, **settings))


def test_make_search():
    made = made_by("auto", memory_mib=7, budget_gflop=3, proposals=5, starts=2, refinements=4)
    assert isinstance(made, AutoSearch)
    assert (made.budget_gflop, made.exhaustive.memory_mib, made.guided.memory_mib) == (3, 7, 7)
    assert (made.guided.proposals, made.guided.starts, made.guided.refinements) == (5, 2, 4)
    exhaustive = made_by("exhaustive", memory_mib=7)
    assert isinstance(exhaustive, ExhaustiveSearch)
    assert exhaustive.memory_mib == 7
    guided = made_by("guided", proposals=9, starts=3, refinements=2, memory_mib=7)
    assert isinstance(guided, GuidedSearch)
    assert (guided.proposals, guided.starts, guided.refinements, guided.memory_mib) == (9, 3, 2, 7)
    beam = made_by("beam", width=3, diversity=0.5, memory_mib=7)
    assert isinstance(beam, BeamSearch)
    assert (beam.width, beam.diversity, beam.memory_mib) == (3, 0.5, 7)
    assert isinstance(made_by("naive"), NaiveSearch)


@pytest.mark.parametrize("screening", ["auto", "on", "off"])
def test_what_screens_is_told_so(screening):
    made = made_by("auto", screening=screening)
    assert {made.exhaustive.screening, made.guided.screening} == {screening}
    assert made_by("exhaustive", screening=screening).screening == screening
    assert made_by("guided", screening=screening).screening == screening


def test_settings_are_changed_and_checked():
    config = SearchConfig(method="guided", proposals=9, tasks=3)
    assert search_settings(config) == config
    assert search_settings(config, method=None, starts=None) == config
    changed = search_settings(config, method="beam", width=5)
    assert changed == SearchConfig(method="beam", proposals=9, tasks=3, width=5)
    assert changed_settings(changed, config) == {"method": "beam", "width": 5}
    assert changed_settings(config, config) == {}


@pytest.mark.parametrize(
    ("overrides", "setting", "message"),
    [
        ({"method": "best"}, "method", "unknown search 'best'; expected one of auto, exhaustive"),
        ({"proposals": 0}, "proposals", "'proposals': Input should be greater than or equal to 1"),
        ({"method": "beam", "diversity": -0.5}, "diversity", "greater than or equal to 0"),
        ({"memory_mib": 0}, "memory_mib", "greater than 0"),
        ({"budget_gflop": float("nan")}, "budget_gflop", "should be a finite number"),
        ({"screening": "yes"}, "screening", "Input should be 'auto', 'on' or 'off'"),
        ({"method": "beam", "screening": "on"}, "screening", "'beam' .* 'screening'"),
        ({"witdh": 3}, "witdh", "there is none of that name"),
        ({"method": "beam", "proposals": 3}, "proposals", "'beam' .* 'proposals'.* auto, guided"),
        ({"method": "naive", "memory_mib": 3}, "memory_mib", "'naive' .* 'memory_mib'"),
    ],
)
def test_bad_settings(overrides, setting, message):
    with pytest.raises(ConfigError, match=message) as caught:
        search_settings(SearchConfig(), **overrides)
    assert caught.value.setting == setting


def test_settings_that_every_search_heeds_are_never_refused():
    """What is not of how to search belongs to the planner, whatever the search."""
    for method in SEARCHES:
        changed = search_settings(SearchConfig(), method=method, tasks=2, objective="prior")
        assert (changed.tasks, changed.objective) == (2, "prior")


@pytest.mark.parametrize(
    ("search", "wrong", "message"),
    [
        (GuidedSearch, {"proposals": 0}, "guided search with 0 proposals"),
        (GuidedSearch, {"refinements": -1}, "-1 refinements"),
        (BeamSearch, {"width": 0}, "beam search of width 0"),
        (BeamSearch, {"diversity": -0.5}, "diversity -0.5"),
        (ExhaustiveSearch, {"memory_mib": 0}, "memory bound of 0 MiB"),
    ],
)
def test_searches_refuse_what_they_cannot_use(search, wrong, message):
    with pytest.raises(ConfigError, match=message):
        search(**wrong)


def test_an_unknown_search_cannot_be_made():
    with pytest.raises(ConfigError, match="unknown search 'best'; expected one of auto, exhaust"):
        made_by("best")
