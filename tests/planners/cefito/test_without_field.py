"""Runs without an energy field: the chain."""

import numpy as np
import pytest

from cefito.errors import RunError
from cefito.planners.cefito.checkpoints import to_field_tensors
from cefito.planners.cefito.objective import CHAIN
from cefito.planners.queries import Queries
from cefito.search import Constraints
from cefito.search.settings import search_settings
from cefito.testing import assert_same_plans
from tiny_cefito import fit, load, tiny_settings

KNOBS = {"train": 36, "val": 12, "test": 24, "dim": 8}
WITHOUT = {"field.trained": False}


@pytest.fixture(scope="module")
def fitted(splits):
    return fit(splits, "small", **WITHOUT)


def test_nothing_is_trained_of_a_field(fitted, splits, tmp_path):
    planner = fitted.planner
    assert not [name for name in fitted.trainings if "field" in name]
    described = planner.describe()
    assert described.parameters == planner.chain.parameters
    assert described.weights == {"energy": 0, "chain": 1}
    assert (planner.horizon, planner.observation_dim) == (3, 8)
    planner.save(tmp_path)
    assert not (tmp_path / "field.safetensors").exists()
    queries = Queries.from_windows(splits["test"])
    for constraints in (Constraints(), Constraints(no_repeats=True)):
        ours, theirs = (
            one.plan(queries, 3, constraints=constraints) for one in (planner, load(tmp_path))
        )
        assert_same_plans(ours, theirs)


def test_plans_are_those_of_the_same_run_without_the_energy(fitted, splits):
    with_field = fit(splits, "small", **{"field.trained": True}).planner
    queries = Queries.from_windows(splits["test"])
    search = search_settings(with_field.settings.search, objective="chain")
    ours, theirs = fitted.planner.plan(queries, 3), with_field.with_search(search).plan(queries, 3)
    assert_same_plans(ours, theirs)
    assert fitted.planner.most_operations(queries, 3).tolist() == [0] * len(queries)


def test_energies_are_refused(fitted, splits, tmp_path):
    search = search_settings(fitted.planner.settings.search, objective="energy")
    planner = fitted.planner.with_search(search)
    queries = Queries.from_windows(splits["test"].subset(np.arange(2)))
    wanted = r"^this run has no energy field \(field\.trained = false\)\. Train one with "
    for ask in (planner.plan, planner.most_operations):
        with pytest.raises(RunError, match=wanted):
            ask(queries, 1)
    with pytest.raises(RunError, match=wanted):
        to_field_tensors(planner, tmp_path)


def test_a_field_can_be_added_later(fitted, splits):
    windows = splits["train"], splits["val"]
    one = tiny_settings("small", **{"field.trained": True})
    more = fitted.planner.refit(*windows, settings=one, seed=0)
    assert "energy field" in more.trainings
    assert more.planner.describe().parameters.keys() == {"chain", "energy field"}
    none = tiny_settings("small", **WITHOUT)
    again = more.planner.refit(*windows, settings=none, seed=0).planner
    assert again.fitted == CHAIN
