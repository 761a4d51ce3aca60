"""Every search and every planner is named in some test; whoever adds one is reminded here."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from cefito import planners, search

TESTS = Path(__file__).parent
METHODS = [
    thing
    for module, method in ((search, "search"), (planners, "plan"))
    for thing in (getattr(module, name) for name in module.__all__)
    if inspect.isclass(thing)
    and hasattr(thing, method)
    and not getattr(thing, "_is_protocol", False)
]


def test_there_are_methods():
    assert {"ExhaustiveSearch", "NaiveSearch", "CefitoPlanner"} <= {
        method.__name__ for method in METHODS
    }


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_every_method_has_a_test(method):
    name = f"{method.__name__}("
    naming = [
        path
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__) and name in path.read_text(encoding="utf-8")
    ]
    assert naming, f"{method.__module__}.{method.__name__} is constructed by no test"
