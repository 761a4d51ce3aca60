from typing import Any

import numpy as np
import pytest

from cefito.data.windows import cut_windows, fitting_windows
from cefito.errors import ConfigError
from cefito.planners.any_length.planner import AnyLengthPlanner
from cefito.planners.any_length.predicted import PredictedLengthPlanner
from cefito.planners.methods import find_method, load_config
from cefito.planners.queries import Queries
from tiny_runs import TINY_LENGTHS

KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}


@pytest.fixture(scope="module")
def lengths(dataset):
    config = load_config("small", method="any-length", overrides=TINY_LENGTHS)
    train, val = fitting_windows(dataset, horizon=4, shortest=1)
    planner = AnyLengthPlanner.fit(train, val, settings=config.settings, seed=0).planner
    return planner.with_lengths(2, 4)


def fitted(dataset, name, horizons, **overrides):
    """Planners of a method, one for each horizon."""
    config = load_config("small", method=name, overrides=overrides)
    kind: Any = find_method(name).planner
    return tuple(
        kind.fit(
            *fitting_windows(dataset, horizon=horizon), settings=config.settings, seed=0
        ).planner
        for horizon in horizons
    )


@pytest.fixture(scope="module")
def chains(dataset):
    changes = {"chain_training.optimiser.epochs": 1, "chain.members": 1}
    return fitted(dataset, "chain", (2, 3, 4), **changes)


@pytest.fixture(scope="module")
def windows(dataset):
    return cut_windows(dataset, horizon=4, shortest=2, split="test")


def test_each_query_is_planned_by_the_planner_of_its_length(lengths, chains, windows):
    planner, queries = PredictedLengthPlanner(lengths, chains), Queries.from_windows(windows)
    found, tasks = planner.plan(queries, 3), planner.predict_tasks(queries)
    chosen = 2 + lengths.log_lengths(queries).argmax(axis=1)
    assert len(set(chosen.tolist())) > 1
    for row in range(0, len(windows), 5):
        length, alone = int(chosen[row]), queries.subset([row])
        (expected,) = chains[length - 2].plan(alone, 3)
        plans = found[row]
        assert plans.actions.shape[1] == 4
        np.testing.assert_array_equal(plans.actions[:, :length], expected.actions)
        assert (plans.actions[:, length:] == -1).all()
        share = np.exp(lengths.log_lengths(alone)[0, length - 2])
        assert plans.probabilities == pytest.approx(share * expected.probabilities, rel=1e-4)
        assert plans.length_probabilities[length] == pytest.approx(share, rel=1e-4)
        assert tasks[row] == chains[length - 2].predict_tasks(alone)[0]


def test_a_given_task_changes_lengths_and_plans(lengths, chains, windows):
    planner, queries = PredictedLengthPlanner(lengths, chains), Queries.from_windows(windows)
    given = queries.with_task(1)
    assert (planner.predict_tasks(given) == 1).all()
    for plans in planner.plan(given, 1):
        assert plans.tasks.tolist() == [1]
    whole = np.exp(lengths.log_lengths(given))
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
    assert not np.allclose(whole, np.exp(lengths.log_lengths(queries)))
    shares = [plans.length_probabilities.values() for plans in lengths.plan(given, 1)]
    np.testing.assert_allclose([list(part) for part in shares], whole, rtol=1e-4)


def test_planners_without_probabilities(lengths, windows, dataset):
    planner = PredictedLengthPlanner(lengths, fitted(dataset, "nearest", (2, 3, 4)))
    plans = planner.plan(Queries.from_windows(windows), 2)
    assert all(one.probabilities is None and one.searched_mass is None for one in plans)
    assert not planner.describe().probabilities
    for refused in (planner.fit, planner.save, planner.load):
        with pytest.raises(NotImplementedError, match="made of planners that are fitted"):
            refused("folder")


def test_a_missing_length_and_a_missing_goal(lengths, chains, windows):
    with pytest.raises(ConfigError, match=r"planners of \[2, 3\] steps"):
        PredictedLengthPlanner(lengths, chains[:2])
    with pytest.raises(ConfigError, match="chain, predicted length needs both observations"):
        PredictedLengthPlanner(lengths, chains).plan(
            Queries.from_windows(windows, without_goal=True), 1
        )
