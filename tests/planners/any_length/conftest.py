"""A planner of one to three steps, fitted once for the tests of this folder."""

import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import fitting_windows
from cefito.planners.any_length.planner import AnyLengthPlanner
from planners.small_methods import small_method

NARROW = {
    "any_length.hidden": 8,
    "any_length.width": 8,
    "any_length.emission": 8,
    "any_length.members": 2,
    "any_length_training.all_videos": 0.0,  # so that some actions are impossible
    "any_length_training.optimiser.epochs": 2,
}


@pytest.fixture(scope="session")
def settings_for():
    """A function that gives the settings with some changes."""
    return small_method("any-length", NARROW)[0]


@pytest.fixture(scope="session")
def small_world(tmp_path_factory):
    knobs = WorldKnobs(train=48, val=16, test=16, dim=12)
    return write_world(tmp_path_factory.mktemp("data") / "world", seed=0, knobs=knobs)


@pytest.fixture(scope="session")
def windows(small_world):
    return fitting_windows(small_world, horizon=3, shortest=1)


@pytest.fixture(scope="session")
def planner(windows, settings_for):
    return AnyLengthPlanner.fit(*windows, settings=settings_for(), seed=0).planner
