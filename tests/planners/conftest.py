import pytest

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world


@pytest.fixture(scope="module")
def dataset(request, tmp_path_factory):
    """A small embedded world of the module's KNOBS."""
    folder, knobs = tmp_path_factory.mktemp("data") / "world", WorldKnobs(**request.module.KNOBS)
    return write_world(folder, seed=0, knobs=knobs)


@pytest.fixture(scope="module")
def splits(request, dataset):
    """Its windows by their split; T = 3, or the module's HORIZON."""
    horizon = getattr(request.module, "HORIZON", 3)
    names = ("train", "val", "test")
    return {split: cut_windows(dataset, horizon=horizon, split=split) for split in names}


@pytest.fixture(scope="module")
def world(splits):
    """Its training and validation windows."""
    return splits["train"], splits["val"]
