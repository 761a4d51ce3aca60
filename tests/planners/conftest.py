import pytest

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world


@pytest.fixture(scope="module")
def dataset(request, tmp_path_factory):
    """A small embedded world of the module's KNOBS."""
    folder, knobs = tmp_path_factory.mktemp("data") / "world", WorldKnobs(**request.module.KNOBS)
    return write_world(folder, seed=0, knobs=knobs)


@pytest.fixture(scope="module")
def world(dataset):
    """Its training and validation windows, T = 3."""
    return tuple(cut_windows(dataset, horizon=3, split=split) for split in ("train", "val"))
