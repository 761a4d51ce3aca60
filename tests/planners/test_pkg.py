from itertools import pairwise, product

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.field.settings import ProposalConfig
from cefito.planners.base import Queries
from cefito.planners.pkg.method import PkgConfig, PkgSettings
from cefito.planners.pkg.planner import PkgBeamPlanner, PkgPlanner
from cefito.training.settings import OptimiserConfig, TrainingConfig

HORIZON = 4
KNOBS = {"train": 72, "val": 24, "test": 12}


def slow_plans(train, first, last):
    """All paths of positive probability by hand: by their probabilities, ties by ids."""
    counts = np.zeros((len(train.taxonomy.actions),) * 2)
    for row in train.actions.tolist():
        for pair in pairwise(row):
            counts[pair] += 1
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    between = product(range(len(counts)), repeat=train.horizon - 2)
    paths = np.array([(first, *actions, last) for actions in between])
    chances = shares[paths[:, :-1], paths[:, 1:]].prod(axis=1)
    costs = np.round(-np.log(chances[chances > 0]), 9)
    return [*map(tuple, paths[chances > 0][np.argsort(costs, kind="stable")].tolist())]


@pytest.fixture(scope="module")
def world(dataset):
    """Training and validation windows by their horizon."""
    return lambda horizon=HORIZON: tuple(
        cut_windows(dataset, horizon=horizon, split=split) for split in ("train", "val")
    )


def small(*, epochs=2, **changes):
    optimiser = OptimiserConfig(epochs=epochs, learning_rate=2e-3, batch_size=64)
    network = ProposalConfig(hidden=(16, 12), action_dim=8)
    training = TrainingConfig(optimiser=optimiser)
    return PkgSettings(pkg=PkgConfig(network=network, training=training, **changes))


def fit(world, *, horizon=HORIZON, **changes):
    return PkgPlanner.fit(*world(horizon), settings=small(**changes), seed=0).planner


@pytest.fixture(scope="module")
def planner(world):
    return fit(world)


@pytest.fixture
def queries(world):
    return Queries.from_windows(world()[1])


def test_single_actions_are_likely_as_first_and_as_last(world):
    planner, queries = fit(world, horizon=1), Queries.from_windows(world(1)[1])
    logits = planner.logits(queries).astype(float)
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    for plan, (first, last) in zip(planner.plan(queries, 3), shares, strict=True):
        best = (first * last).argsort()[::-1][:3]
        np.testing.assert_array_equal(plan.actions, best[:, None])
        np.testing.assert_allclose(np.exp(-plan.energies), (first * last)[best], rtol=1e-6)


def test_plans_are_the_likeliest_paths(world, planner, queries):
    train, _ = world()
    ends = planner.logits(queries).argmax(axis=2)
    plans = planner.plan(queries, 3)
    connected = 0
    for plan, (first, last) in zip(plans, ends.tolist(), strict=True):
        expected = slow_plans(train, first, last)[:3]
        assert [tuple(row) for row in plan.actions.tolist()][: len(expected)] == expected
        assert plan.actions.shape == (3, HORIZON)
        assert (plan.actions[:, [0, -1]] == (first, last)).all()
        assert plan.exact
        assert plan.evaluated.token_forwards == 0
        np.testing.assert_array_equal(plan.energies, plan.scores)
        connected += bool(expected)
    assert connected > 0


def test_a_wide_beam_is_exact_and_a_narrow_one_never_better(world, planner, queries, tmp_path):
    planner.save(tmp_path)
    wide = len(world()[0].taxonomy.actions) ** (HORIZON - 2)
    for width, kind in ((wide, PkgBeamPlanner), (1, PkgBeamPlanner), (3, PkgPlanner)):
        other = kind.load(tmp_path, settings=small(width=width))
        assert type(other) is kind
        plans, exact = other.plan(queries, 2), planner.plan(queries, 2)
        for plan, best in zip(plans, exact, strict=True):
            assert plan.exact == (kind is PkgPlanner)
            assert len(plan) == (1 if width == 1 else 2)
            assert plan.energies[0] >= best.energies[0]
            if width > 1:
                np.testing.assert_array_equal(plan.actions, best.actions)
                np.testing.assert_array_equal(plan.energies, best.energies)


def test_a_graph_without_any_path_still_gives_plans(world, queries):
    planner = fit(world, epochs=1)
    planner.network.counts.zero_()
    ends = planner.logits(queries).argmax(axis=2)
    for plan, (first, last) in zip(planner.plan(queries, 2), ends.tolist(), strict=True):
        assert plan.actions.tolist() == [[first, 0, 0, last], [first, 0, 1, last]]
        assert np.isfinite(plan.energies).all()
