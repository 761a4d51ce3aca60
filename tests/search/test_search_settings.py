import pytest

from cefito.errors import ConfigError
from cefito.search.registry import SEARCHES
from cefito.search.settings import SearchConfig, changed_settings, search_settings


def test_settings_with_some_replaced():
    before = SearchConfig(method="beam", width=7)
    assert search_settings(before) == before
    assert search_settings(before, method=None, tasks=None) == before
    changed = search_settings(before, method="auto", tasks=0, budget_gflop=2, prior_weight=0.5)
    assert changed == SearchConfig(
        method="auto", width=7, tasks=0, budget_gflop=2, prior_weight=0.5
    )
    assert before == SearchConfig(method="beam", width=7)


@pytest.mark.parametrize(
    ("overrides", "setting", "message"),
    [
        ({"method": "gided"}, "method", r"unknown search 'gided'; expected .*'?guided'?.*\.$"),
        ({"tasks": -1}, "tasks", r"greater than or equal to 0 \(got -1\)"),
        ({"tasks": 1.5}, "tasks", "got 1.5"),
        ({"method": "auto", "budget_gflop": -1.0}, "budget_gflop", "got -1.0"),
        ({"pruning": -2}, "pruning", "got -2"),
        ({"objective": "score"}, "objective", r"'fitted'.*\(got 'score'\)"),
        ({"method": "guided", "proposals": 0}, "proposals", "got 0"),
        ({"memory_mib": 0.0}, "memory_mib", r"greater than 0 \(got 0.0\)"),
        ({"widht": 3}, "widht", "there is none of that name"),
        ({"prior_weight": float("nan")}, "prior_weight", r"finite number \(got nan\)"),
        ({"memory_mib": float("inf")}, "memory_mib", r"finite number \(got inf\)"),
    ],
)
def test_values_that_cannot_be(overrides, setting, message):
    with pytest.raises(ConfigError, match=message) as caught:
        search_settings(SearchConfig(), **overrides)
    assert caught.value.setting == setting
    assert setting in str(caught.value) or setting == "method"
    assert "--" not in str(caught.value)


VALUES = {
    "memory_mib": 2.0,
    "screening": "on",
    "budget_gflop": 2.0,
    "proposals": 2,
    "starts": 2,
    "refinements": 2,
    "width": 2,
    "diversity": 2.0,
}


def test_every_setting_of_some_search_only_is_tried_below():
    assert {name for entry in SEARCHES.values() for name in entry.reads} == VALUES.keys()
    assert VALUES.keys() < SearchConfig.model_fields.keys()


@pytest.mark.parametrize("setting", VALUES)
@pytest.mark.parametrize("method", SEARCHES)
def test_settings_that_the_search_does_not_read_are_refused(method, setting):
    readers = [name for name, entry in SEARCHES.items() if setting in entry.reads]
    given = {setting: VALUES[setting]}
    for before, more in ((SearchConfig(), {"method": method}), (SearchConfig(method=method), {})):
        if method in readers:
            assert getattr(search_settings(before, **given, **more), setting) == VALUES[setting]
            continue
        with pytest.raises(
            ConfigError, match=rf"search '{method}' .*'{setting}'.* {', '.join(readers)}\.$"
        ) as caught:
            search_settings(before, **given, **more)
        assert caught.value.setting == setting
        assert "--" not in str(caught.value)


@pytest.mark.parametrize("method", SEARCHES)
def test_what_every_search_reads(method):
    given = {"objective": "fitted", "tasks": 3, "pruning": 1, "prior_weight": 0.5}
    settings = search_settings(SearchConfig(), method=method, **given)
    assert {name: getattr(settings, name) for name in given} == given


def test_settings_of_other_searches_stay_where_they_are_not_named():
    before = SearchConfig(method="beam", width=7, diversity=0.5)
    assert search_settings(before, method="naive").width == 7


def test_what_was_changed():
    usual = SearchConfig()
    assert changed_settings(usual, usual) == {}
    changed = search_settings(usual, method="auto", tasks=0, budget_gflop=20.0, memory_mib=0.5)
    told = changed_settings(changed, usual)
    assert told == {"memory_mib": 0.5, "method": "auto", "budget_gflop": 20.0, "tasks": 0}
    assert list(told) == ["memory_mib", "method", "budget_gflop", "tasks"]  # as the fields stand
    assert changed_settings(usual, changed) == {
        "memory_mib": 1024,
        "method": "exhaustive",
        "budget_gflop": 500,
        "tasks": 1,
    }
    assert search_settings(usual, **told) == changed
