"""A run that the tests of commands share."""

import pytest

from cefito.cli import main
from tiny_runs import TINY_RUN, as_arguments


@pytest.fixture(scope="session")
def trained(world, tmp_path_factory):
    """A finished run, not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", str(world.folder), "--horizon", "3", "--out", str(out), "--preset", "paper"]
    assert main([*command, *as_arguments(TINY_RUN)]) == 0
    return out
