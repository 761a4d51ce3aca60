import pytest

from cefito.errors import ConfigError
from cefito.search.settings import SearchConfig, changed_settings, option_name, search_settings


def test_settings_with_some_replaced():
    own = SearchConfig(method="beam", width=7)
    assert search_settings(own) == own
    assert search_settings(own, method=None, tasks=None) == own
    changed = search_settings(own, method="guided", tasks=0, budget_gflop=2, prior_weight=0.5)
    assert changed == SearchConfig(
        method="guided", width=7, tasks=0, budget_gflop=2, prior_weight=0.5
    )
    assert own == SearchConfig(method="beam", width=7)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"method": "gided"}, r"--search gided: .*'guided'.*\.$"),
        ({"tasks": -1}, "--tasks -1: .*greater than or equal to 0"),
        ({"tasks": 1.5}, "--tasks 1.5"),
        ({"budget_gflop": -1.0}, "--budget -1.0"),
        ({"pruning": -2}, "--pruning -2"),
        ({"objective": "score"}, "--objective score: .*'fitted'"),
        ({"proposals": 0}, "--proposals 0"),
        ({"memory_mib": 0.0}, "--memory-mib 0.0: .*greater than 0"),
        ({"widht": 3}, "--widht 3: Extra inputs"),
        ({"prior_weight": float("nan")}, "--prior-weight nan: expected a finite number"),
        ({"memory_mib": float("inf")}, "--memory-mib inf: expected a finite number"),
    ],
)
def test_values_that_cannot_be(overrides, message):
    with pytest.raises(ConfigError, match=message):
        search_settings(SearchConfig(), **overrides)


def test_what_was_changed():
    own = SearchConfig()
    assert changed_settings(own, own) == []
    changed = search_settings(own, method="guided", tasks=0, budget_gflop=20.0, memory_mib=0.5)
    assert changed_settings(changed, own) == [
        "memory-mib 0.5",
        "search guided",
        "budget 20",
        "tasks 0",
    ]
    assert changed_settings(own, changed) == [
        "memory-mib 1024",
        "search exhaustive",
        "budget 500",
        "tasks 1",
    ]


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("method", "search"),
        ("budget_gflop", "budget"),
        ("tasks", "tasks"),
        ("prior_weight", "prior-weight"),
    ],
)
def test_names_of_options(setting, option):
    assert option_name(setting) == option
    assert setting in SearchConfig.model_fields
