"""Planners whose field has both directions."""

import pytest
import torch

from cefito.errors import RunError
from cefito.field.energy import EnergyField
from cefito.field.fields import BACKWARD, CompositeField, named_components
from cefito.files import load_tensors, write_tensors
from cefito.planners.cefito.fit import FIELD, component_seed
from cefito.training.trainer import TrainingContext
from same import same_weights
from tiny_cefito import fit, load

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


def test_a_second_training_resumes_all_parts(fitted, splits, folder):
    again = fit(splits, context=TrainingContext(folder=folder), **BOTH)
    assert all(result.resumed for result in again.trainings.values())
    assert same_weights(again.planner.field, fitted.planner.field)


@pytest.mark.usefixtures("alone")
def test_a_direction_can_be_added_to_a_training(fitted, splits, alone_folder):
    more = fit(splits, context=TrainingContext(folder=alone_folder), **BOTH)
    assert more.trainings[FIELD].resumed
    assert not more.trainings[f"{FIELD}-backward"].resumed
    assert same_weights(more.planner.field, fitted.planner.field)


def test_both_directions_know_actions_by_the_same_means(splits):
    more = {"field.action_encoding": "observed", "field.goal_skip": True}
    field = fit(splits, **BOTH, **more).planner.field
    ahead, back = (part.predictor.action_vectors for part in named_components(field).values())
    assert torch.equal(ahead, back)


def test_a_file_that_lacks_a_part(fitted, tmp_path):
    fitted.planner.save(tmp_path)
    tensors, _ = load_tensors(tmp_path / "field.safetensors", "pt", "", RunError)
    kept = {name: value for name, value in tensors.items() if not name.startswith("back.")}
    write_tensors(tmp_path / "field.safetensors", kept)
    with pytest.raises(RunError, match=r"tensor 'back\.mean' is missing"):
        load(tmp_path)
