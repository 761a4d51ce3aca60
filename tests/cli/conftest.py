"""A tiny world and a run on it that the tests of commands share."""

import pytest

from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world
from tiny_runs import TINY_RUN, as_arguments


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A data set, not to be changed."""
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=24, val=12, test=12, dim=8),
    )


@pytest.fixture(scope="session")
def trained(world, tmp_path_factory):
    """A finished run, not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", str(world.folder), "--horizon", "3", "--out", str(out), "--preset", "paper"]
    assert main([*command, *as_arguments(TINY_RUN)]) == 0
    return out
