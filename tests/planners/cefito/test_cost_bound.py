"""The operations that a planner says a query may take, against the operations that it takes."""

import numpy as np
import pytest

from cefito.planners.queries import Queries
from cefito.search import SEARCHES, Constraints
from cefito.search.base import operations
from cefito.search.settings import search_settings
from tiny_cefito import fit

KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}


@pytest.fixture(scope="module")
def trained(splits):
    return fit(splits, "small", **{"search.fitting_windows": 5}).planner


@pytest.fixture(scope="module")
def queries(splits):
    return Queries.from_windows(splits["test"]).subset([0, 11, 30])


@pytest.mark.parametrize("objective", ["energy", "fitted", "chain"])
@pytest.mark.parametrize("method", SEARCHES)
def test_no_search_costs_more_than_was_said(trained, queries, method, objective):
    changes = {"method": method, "objective": objective, "tasks": 2}
    planner = trained.with_search(search_settings(trained.settings.search, **changes))
    pinned = Constraints(pinned=((1, planner.space.actions[4][0]),))
    given = queries.with_task(4)
    for asked, constraints in ((queries, Constraints()), (given, Constraints()), (given, pinned)):
        bounds = planner.most_operations(asked, 5, constraints)
        plans = planner.plan(asked, 5, constraints=constraints)
        spent = [operations(planner.incremental, found.evaluated) for found in plans]
        assert (np.array(spent) <= bounds).all()
        exact = method == "exhaustive" and objective == "energy"
        if exact and asked is given and not constraints:
            np.testing.assert_allclose(spent, bounds)
