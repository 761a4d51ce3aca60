"""The operations that a planner says a query may take, against the operations that it takes."""

import numpy as np
import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.planners.base import BasePlanner
from cefito.planners.queries import Queries
from cefito.planners.settings import load_config
from cefito.runs.train import train_run
from cefito.search import SEARCHES, Constraints
from cefito.search.base import operations
from cefito.search.settings import search_settings

QUICK = {
    "field.depth": 1,
    "field.width": 16,
    "training.optimiser.epochs": 1,
    "training.stopping.windows": 5,
    "chain.members": 1,
    "chain_training.optimiser.epochs": 1,
    "search.fitting_windows": 5,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    world = write_world(folder / "world", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    config = load_config("small", overrides=QUICK)
    return train_run(world, folder / "run", config=config, horizon=3, seed=0)


@pytest.mark.parametrize("changes", [{}, {"pruning": 1}], ids=["all", "pruned"])
@pytest.mark.parametrize("objective", ["energy", "fitted", "likelihood"])
@pytest.mark.parametrize("method", [*SEARCHES, "screened exhaustive", "screened guided"])
def test_no_search_costs_more_than_was_said(run, method, objective, changes):
    windows = cut_windows(run.dataset(), horizon=3, split="test")
    queries = Queries.from_windows(windows).subset([0, 11, 30])
    changes = {"method": method.split()[-1], "objective": objective, "tasks": 2, **changes}
    if method.startswith("screened"):
        changes["screening"] = "on"
    planner = run.planner.with_search(search_settings(run.trained_search, **changes))
    pinned = Constraints(pinned=((1, planner.space.actions[4][0]),))
    given = queries.with_task(4)
    for asked, constraints in ((queries, Constraints()), (given, Constraints()), (given, pinned)):
        bounds = planner.most_operations(asked, 5, constraints)
        plans = planner.plan(asked, 5, constraints=constraints)
        spent = [operations(planner.incremental, found.evaluated) for found in plans]
        assert (np.array(spent) <= bounds).all()
        exact = method in ("exhaustive", "naive") and objective == "energy"
        if exact and asked is given and not constraints and "pruning" not in changes:
            np.testing.assert_allclose(spent, bounds)


def test_planners_without_a_search_have_no_bound(run):
    windows = cut_windows(run.dataset(), horizon=3, split="test")
    assert BasePlanner().most_operations(Queries.from_windows(windows), 5) is None
