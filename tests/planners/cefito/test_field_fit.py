"""Planners whose field has both directions."""

import pytest
import torch

from cefito.field.energy import EnergyField
from cefito.field.fields import BACKWARD, CompositeField, named_components
from cefito.planners.cefito.fit import FIELD, component_seed
from cefito.training.trainer import TrainingContext
from learned import same_weights
from tiny_cefito import fit

KNOBS = {"train": 36, "val": 12, "test": 24, "dim": 8}
BOTH = {"field.directions": "both"}


@pytest.fixture(scope="module")
def alone_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("alone")


@pytest.fixture(scope="module")
def alone(splits, alone_folder):
    return fit(splits, context=TrainingContext(folder=alone_folder)).planner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trainings")


@pytest.fixture(scope="module")
def fitted(splits, folder):
    return fit(splits, context=TrainingContext(folder=folder), **BOTH)


def test_every_direction_is_trained_by_itself(fitted, alone, folder):
    titles = [FIELD, f"{FIELD}-backward"]
    assert [title for title in fitted.trainings if title.startswith(FIELD)] == titles
    for name in ("field", "field-backward"):
        assert (folder / name / "checkpoint.safetensors").exists()
        assert "val_success_rate" in (folder / name / "metrics.jsonl").read_text()
    ahead, back = named_components(fitted.planner.field).values()
    assert not torch.equal(ahead.predictor.state_head.weight, back.predictor.state_head.weight)
    assert isinstance(fitted.planner.field, CompositeField)
    assert isinstance(alone.field, EnergyField)
    assert same_weights(ahead, alone.field)
    assert component_seed(7, "") == 7 != component_seed(7, BACKWARD) != component_seed(8, BACKWARD)


def test_both_directions_know_actions_by_the_same_means(splits):
    more = {"field.action_encoding": "observed", "field.goal_skip": True}
    field = fit(splits, **BOTH, **more).planner.field
    ahead, back = (part.predictor.action_vectors for part in named_components(field).values())
    assert torch.equal(ahead, back)
