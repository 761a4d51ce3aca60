import pytest

from cefito.errors import ConfigError
from cefito.planners.shared.settings import PlanningConfig
from cefito.search import AutoSearch, ExhaustiveSearch, GuidedSearch
from cefito.search.settings import SearchConfig, make_search, search_settings


@pytest.mark.parametrize(
    ("overrides", "setting", "message"),
    [
        ({"method": "gided"}, "method", r"unknown search 'gided'; expected .*'?guided'?.*\.$"),
        ({"tasks": 0}, "tasks", r"expected at least 1 \(got 0\)"),
        ({"objective": "score"}, "objective", r"'fitted'.*\(got 'score'\)"),
        ({"memory_mib": 0.0}, "memory_mib", r"more than 0 \(got 0.0\)"),
        ({"widht": 3}, "widht", "there is none of that name"),
        ({"budget_gflop": float("nan")}, "budget_gflop", r"finite number \(got nan\)"),
        ({"proposals": 3}, "proposals", "'exhaustive' .* 'proposals'.* auto, guided"),
    ],
)
def test_values_that_cannot_be(overrides, setting, message):
    with pytest.raises(ConfigError, match=message) as caught:
        search_settings(PlanningConfig(), **overrides)
    assert caught.value.setting == setting
    assert setting in str(caught.value) or setting == "method"
    assert "--" not in str(caught.value)


def test_searches_are_made_with_their_settings():
    values = {"memory_mib": 7, "proposals": 5, "starts": 2, "refinements": 4}
    made = make_search(SearchConfig(method="auto", budget_gflop=3, **values))
    assert isinstance(made, AutoSearch)
    assert made.budget_gflop == 3
    assert made.exhaustive == ExhaustiveSearch(memory_mib=7)
    assert made.guided == GuidedSearch(**values)
    with pytest.raises(ConfigError, match=r"search 'best'; .* auto, exhaust"):
        make_search(SearchConfig(method="best"))
