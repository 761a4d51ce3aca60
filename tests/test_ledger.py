"""What works stays: all that `ledger.txt` names is there, and each of its promises has its test.

What is new need not stand there at once, but what stands there may not be missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import cefito
from cefito.data.readers.benchmarks import BENCHMARKS
from cefito.data.readers.feature_files import _ENDINGS as FEATURES
from cefito.encoders.text import TEXT_MODELS
from cefito.encoders.video import ENCODERS
from cefito.evaluation.metrics import METRICS
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS
from cefito.executors import EXECUTORS
from cefito.field.settings import DISTANCES
from cefito.inference import plan_formats
from cefito.inference.question import Question
from cefito.planners.given import Given
from cefito.planners.methods import METHODS, preset_names
from cefito.recognition.methods import RECOGNISERS
from cefito.search.constraints import Constraints
from cefito.search.settings import SEARCHES
from cefito.study.reproduce import EXPERIMENTS
from cefito.study.trials import ROWS
from cefito.study.verifiers import VERIFIERS
from cefito.tracks.formats import FORMATS, WRITERS
from test_documentation import commands, options

TESTS = Path(__file__).parent
REGISTERED: dict[str, Iterable[str]] = {
    "methods": METHODS,
    "rows": ROWS,
    "searches": SEARCHES,
    "metrics": METRICS,
    "metrics of recognisers": RECOGNISER_METRICS,
    "encoders": ENCODERS,
    "encoders of text": TEXT_MODELS,
    "annotations in": [form.name.replace(" ", "_") for form in FORMATS],
    "features in": FEATURES,
    "benchmarks": BENCHMARKS,
    "plans out": plan_formats.FORMATS,
    "steps out": WRITERS,
    "tables and figures of the paper": EXPERIMENTS,
    "recognisers": [row for method in RECOGNISERS.values() for row in method.rows],
    "verifiers": VERIFIERS,
    "executors": EXECUTORS,
    "presets": preset_names(),
    "distances": DISTANCES,
    "constraints": Constraints.__dataclass_fields__,
    "facts of a question": Question.model_fields,
    "facts that scores are given": Given.model_fields,
    "names in Python": cefito.__all__,
}


@cache
def ledger() -> dict[str, dict[str, list[str]]]:
    """The tests of each line, by its section and by what it names."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (TESTS / "ledger.txt").read_text(encoding="utf-8").splitlines()[2:]:
        names, _, tests = line.partition(" | ")
        if line.startswith("["):
            section = sections.setdefault(line[1:-1], {})
        elif line:
            section[names] = tests.split()
    return sections


def test_commands_have_their_options():
    missing = []
    for line in ledger()["commands"]:
        words = line.split()[1:]
        chain = tuple(word for word in words if not word.startswith("--"))
        if chain not in commands() or not {*words[len(chain) :]} <= options(*chain):
            missing.append(line)
    assert missing == []


def test_names_are_registered():
    listed: dict[str, str] = dict(line.split(": ") for line in ledger()["names"])
    assert set(listed) == set(REGISTERED)
    missing = {
        kind: set(names.split()).difference(REGISTERED[kind]) for kind, names in listed.items()
    }
    assert {kind: names for kind, names in missing.items() if names} == {}


def test_routes_and_tools_are_served(run_of_lengths):
    pytest.importorskip("fastapi")
    from cefito.serve import mcp
    from cefito.serve.app import create_app
    from cefito.serve.settings import ServiceSettings

    app = create_app(ServiceSettings(runs=(run_of_lengths.folder,), mcp=True))
    routers = [app, *(getattr(route, "original_router", app) for route in app.routes)]
    routes = {
        f"{method} {route.path}"
        for router in routers
        for route in router.routes
        for method in getattr(route, "methods", None) or ()
    }
    assert set(ledger()["routes"]) - routes == set()
    assert set(ledger()["tools"]) - set(mcp.TOOLS) == set()


def test_each_line_names_tests_that_there_are():
    there = {
        f"{path.relative_to(TESTS).as_posix()}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    missing = {
        line: tests
        for section in ledger().values()
        for line, tests in section.items()
        if not tests or not set(tests) <= there
    }
    assert missing == {}
