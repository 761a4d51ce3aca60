"""One loaded run serves many threads, each with a search, constraints and tasks of its own."""

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from cefito.errors import ConfigError
from cefito.inference.answer import answer
from cefito.planners.methods import METHODS, load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.settings_export import settings_values
from cefito.runs.train import train_run
from cefito.search import Constraints
from cefito.search.settings import SEARCHES
from cefito.testing import assert_same_plans, quick
from language_model import SETTINGS as STAND_IN
from tiny_runs import NARROW, often_or_nightly

pytestmark = pytest.mark.usefixtures("language_model")

THREADS = 8
KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}
# endings of the keys of settings that make training quick
QUICK = {".optimiser.epochs": 1, ".stopping.windows": 5, ".fitting_windows": 5}
SEARCHED = (
    {},
    {"method": "guided", "proposals": 6, "starts": 2, "refinements": 4},
    {"method": "beam", "width": 3, "objective": "energy"},
    {"method": "naive", "objective": "energy", "tasks": 2},
    {"method": "auto", "budget_gflop": 0, "objective": "chain"},
    {"method": "exhaustive", "objective": "fitted", "tasks": 3},
)


@pytest.fixture(scope="module")
def queries(splits):
    return Queries.from_windows(splits["test"]).subset([0, 9, 23])


@pytest.fixture(scope="module")
def loaded(dataset, tmp_path_factory):
    """Gives the loaded run of a method, trained briefly where it was not yet."""
    settings = quick(settings_values("small"), QUICK) | NARROW | STAND_IN
    runs = {}

    def load(method):
        if method not in runs:
            folder = tmp_path_factory.mktemp("runs") / method
            config = load_config("small", method=method, overrides=settings, shared=True)
            train_run(dataset, folder, config=config, horizon=3, seed=0)
            runs[method] = open_run(folder)
        return runs[method]

    return load


@pytest.fixture
def busy(monkeypatch):
    """Threads change over often, and hardly anything that they share is kept for long."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    monkeypatch.setattr("cefito.search.prior.TABLES_KEPT", 2)
    yield
    sys.setswitchinterval(interval)


def saved(planner, folder):
    """All that a planner is, as bytes by the name of the file."""
    folder.mkdir()
    planner.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_threads(ask, requests):
    """What each request gives, asked for twice by threads that take turns."""
    order = [*range(len(requests))] * 2
    random.Random(0).shuffle(order)
    with ThreadPoolExecutor(THREADS) as pool:
        given = list(pool.map(lambda index: ask(*requests[index]), order))
    return list(zip(order, given, strict=True))


def outcome(run, query, changes, constraints, task):
    """The answer, or the line that refuses the request."""
    if changes:
        run = run.with_search(**changes)
    try:
        return answer(run, query, task=task, top_k=4, constraints=constraints).to_dict()
    except ConfigError as refusal:
        return str(refusal)


def test_threads_with_different_searches_and_constraints(loaded, queries, tmp_path, busy):
    run = loaded("cefito")
    others = SEARCHES.keys() - {changes.get("method") for changes in SEARCHED}
    searched = [*SEARCHED, *({"method": name} for name in sorted(others))]
    first, *_, last = run.planner.space.actions[4]
    constraints = (
        Constraints(),
        Constraints(no_repeats=True, before=((first, last),)),
        Constraints(required=(first,)),
    )
    asked = ((queries.subset([0]), 4), (queries.subset([2]), None))
    requests = [
        (run, query, *rest, task) for (query, task), *rest in product(asked, searched, constraints)
    ]
    description, before = run.planner.describe(), saved(run.planner, tmp_path / "before")
    expected = [outcome(*request) for request in requests]
    answers = [value for value in expected if not isinstance(value, str)]
    assert len({str(value["plans"]) for value in answers}) > len(requests) / 3
    assert len(answers) < len(requests)  # some cannot be satisfied, and say so
    for index, given in in_threads(outcome, requests):
        assert given == expected[index]
    assert run.planner.describe() == description
    assert saved(run.planner, tmp_path / "after") == before
    assert outcome(*requests[0]) == expected[0]


@pytest.mark.parametrize("method", [*map(often_or_nightly, METHODS)])
def test_threads_share_the_run_of_every_method(method, loaded, queries, tmp_path, busy):
    run = loaded(method)

    def plan(rows, task, top_k):
        asked = queries.subset(rows)
        return run.planner.plan(asked if task is None else asked.with_task(task), top_k)

    requests = [([0], None, 1), ([0], 4, 5), ([2, 0, 1], None, 5), ([2, 0, 1], 4, 1)]
    before = saved(run.planner, tmp_path / "before")
    expected = [plan(*request) for request in requests]
    for index, given in in_threads(plan, requests):
        assert_same_plans(given, expected[index])
        assert [one.evaluated for one in given] == [one.evaluated for one in expected[index]]
    assert saved(run.planner, tmp_path / "after") == before
