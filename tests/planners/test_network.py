"""Files of planners of one network; all else of them is in the contract of planners."""

import json
from dataclasses import asdict

import pytest
import torch

from cefito.data import cut_windows
from cefito.errors import RunError
from cefito.files import load_tensors
from cefito.planners.base import Queries, Shape
from cefito.planners.example.linear_example import METHOD, LinearExamplePlanner
from cefito.testing import assert_same_plans
from cefito.training.settings import OptimiserConfig, TrainingConfig

ONE_EPOCH = TrainingConfig(optimiser=OptimiserConfig(epochs=1))
SETTINGS = METHOD.settings.model_validate({"linear_example": {"training": ONE_EPOCH}})


@pytest.fixture
def windows(tiny_dataset):
    return cut_windows(tiny_dataset, horizon=2, split="train")


@pytest.fixture
def planner(windows):
    return LinearExamplePlanner.fit(windows, windows, settings=SETTINGS, seed=0).planner


def test_sizes_are_read_from_the_metadata(planner, windows, tmp_path):
    shape = Shape(observation_dim=4, tasks=3, actions=8, horizon=2)
    assert planner.shape == shape
    assert LinearExamplePlanner.sizes(SETTINGS, shape) == planner.parameters
    planner.save(tmp_path)
    _, metadata = load_tensors(tmp_path / "linear_example.safetensors", "pt", "")
    assert json.loads(metadata["shape"]) == asdict(shape)
    loaded = LinearExamplePlanner.load(tmp_path, settings=SETTINGS)
    assert loaded.shape == shape
    queries = Queries.from_windows(windows)
    assert_same_plans(planner.plan(queries, 3), loaded.plan(queries, 3))


@pytest.mark.parametrize("content", [None, b"garbage"])
def test_files_that_cannot_be_loaded_name_themselves(tmp_path, content):
    path = tmp_path / "linear_example.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"linear_example\.safetensors.*Train the run again"):
        LinearExamplePlanner.load(tmp_path, settings=SETTINGS)


def test_outputs_that_are_not_finite_name_the_query(planner, windows):
    with torch.no_grad():
        planner.network.linear.weight.fill_(torch.nan)
    with pytest.raises(RunError, match=r"query 0 .* network gives NaN"):
        planner.plan(Queries.from_windows(windows), 1)
