"""One loaded run serves many threads, each with a search, constraints and tasks of its own."""

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cefito.planners.methods import METHODS, load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.settings_export import settings_values
from cefito.runs.train import train_run
from cefito.testing import assert_same_plans, quick
from language_model import SETTINGS as STAND_IN
from tiny_runs import NARROW

pytestmark = pytest.mark.usefixtures("language_model")

THREADS = 8
KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}
# endings of the keys of settings that make training quick
QUICK = {".optimiser.epochs": 1, ".stopping.windows": 5, ".fitting_windows": 5}


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


SHARING = ("cefito", "any-length")  # they keep what several queries share


@pytest.mark.parametrize(
    "method",
    [pytest.param(one, marks=[pytest.mark.nightly] * (one not in SHARING)) for one in METHODS],
)
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
