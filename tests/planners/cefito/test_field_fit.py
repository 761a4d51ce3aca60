"""Planners whose field has both directions, or several members."""

import pytest
import torch

from cefito.errors import RunError
from cefito.field.energy import EnergyField
from cefito.field.fields import ComponentName, CompositeField
from cefito.files import load_tensors, write_tensors
from cefito.planners.cefito.fit import FIELD, component_seed
from cefito.planners.queries import Queries
from cefito.testing import assert_same_plans
from cefito.training.trainer import TrainingContext
from same import same_weights
from tiny_cefito import fit, load

KNOBS = {"train": 36, "val": 12, "test": 24, "dim": 8}
BOTH = {"field.directions": "both", "field.members": 2}
PARTS = ("", "backward", "1", "1-backward")


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


def test_every_part_is_trained_by_itself(fitted, folder):
    titles = [FIELD, f"{FIELD}-backward", f"{FIELD}-1", f"{FIELD}-1-backward"]
    assert [title for title in fitted.trainings if title.startswith(FIELD)] == titles
    for name in ("field", "field-backward", "field-1", "field-1-backward"):
        assert (folder / name / "checkpoint.safetensors").exists()
        assert "val_success_rate" in (folder / name / "metrics.jsonl").read_text()
    heads = [
        fitted.planner.field.state_dict()[f"{part}{'.' * bool(part)}predictor.state_head.weight"]
        for part in PARTS
    ]
    for number, head in enumerate(heads):
        assert not any(torch.equal(head, other) for other in heads[:number])


def test_the_first_part_is_the_field_of_one_direction(fitted, alone):
    joint, plain = fitted.planner.field, alone.field
    assert isinstance(joint, CompositeField)
    assert isinstance(plain, EnergyField)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, joint.state_dict()[name])


def test_seeds_of_parts():
    names = [ComponentName(member, backward) for member in range(3) for backward in (False, True)]
    assert component_seed(7, ComponentName()) == 7
    assert len({component_seed(seed, name) for seed in (7, 8) for name in names}) == 12


def test_a_second_training_resumes_all_parts(fitted, splits, folder):
    again = fit(splits, context=TrainingContext(folder=folder), **BOTH)
    assert all(result.resumed for result in again.trainings.values())
    assert same_weights(again.planner.field, fitted.planner.field)


@pytest.mark.usefixtures("alone")
def test_a_direction_can_be_added_to_a_training(fitted, splits, alone_folder):
    context = TrainingContext(folder=alone_folder)
    more = fit(splits, context=context, **{"field.directions": "both"})
    assert more.trainings[FIELD].resumed
    assert not more.trainings[f"{FIELD}-backward"].resumed
    own, other = (planner.field.state_dict() for planner in (more.planner, fitted.planner))
    assert all(torch.equal(value, other[name]) for name, value in own.items())


def test_the_backward_part_reads_windows_from_their_end(splits, fitted):
    more = {"field.action_encoding": "observed", "field.goal_skip": True}
    state = fit(splits, **{"field.directions": "both", **more}).planner.field.state_dict()
    vectors = "predictor.action_vectors"
    assert torch.equal(state[vectors], state[f"backward.{vectors}"])


def test_saved_and_loaded(fitted, splits, tmp_path):
    fitted.planner.save(tmp_path)
    loaded = load(tmp_path)
    assert same_weights(loaded.field, fitted.planner.field)
    queries = Queries.from_windows(splits["test"]).subset(range(12))
    assert_same_plans(loaded.plan(queries, 5), fitted.planner.plan(queries, 5))
    tensors, _ = load_tensors(tmp_path / "field.safetensors", "pt", "", RunError)
    assert sum(name.startswith("1-backward.") for name in tensors) == len(tensors) / 4


def test_a_file_that_lacks_a_part(fitted, tmp_path):
    fitted.planner.save(tmp_path)
    tensors, _ = load_tensors(tmp_path / "field.safetensors", "pt", "", RunError)
    kept = {name: value for name, value in tensors.items() if not name.startswith("backward.")}
    write_tensors(tmp_path / "field.safetensors", kept)
    with pytest.raises(RunError, match=r"tensor 'backward\.mean' is missing"):
        load(tmp_path)


def test_what_it_says_of_itself(fitted, alone):
    own, other = (planner.describe().parameters for planner in (fitted.planner, alone))
    assert own[FIELD] == 4 * other[FIELD]
    assert {**own, FIELD: 0} == {**other, FIELD: 0}
