import numpy as np
import pytest
from small_methods import small_method

from cefito.errors import ConfigError, DataError
from cefito.planners.base import Queries
from cefito.planners.mtid.planner import MtidPlanner, MtidTaskModel
from cefito.planners.shared.task_model import TaskModel

KNOBS = {"train": 36, "val": 12, "test": 12, "dim": 12}
TINY = {
    "mtid.widths": "[16]",
    "mtid.steps": 20,
    "mtid.sampling": 4,
    "mtid.layers": 1,
    "mtid.feedforward": 16,
    "mtid.tasks": "own",
    "mtid.training.optimiser.epochs": 2,
    "mtid.training.stopping.every": 1,
    "mtid_classifier.width": 16,
    "mtid_classifier.feedforward": 16,
    "mtid_classifier.hidden": 8,
    "mtid_classifier.training.optimiser.epochs": 2,
    "classifier_training.optimiser.epochs": 2,
}
tiny, fit = small_method("mtid", TINY)


@pytest.fixture(scope="module")
def training(world):
    return fit(world)


@pytest.fixture(scope="module")
def masked(world):
    return fit(world, **{"mtid.mask": "true", "mtid.tasks": "shared"}).planner


def test_a_masked_task_may_have_fewer_plans_than_are_asked_for(world, masked):
    network = masked.network
    (task, *_) = world[1].tasks
    before = network.task_actions[task].clone()
    try:
        network.task_actions[task] = False
        network.task_actions[task, [2, 5]] = True
        queries = Queries.from_windows(world[1]).subset([0]).with_task(int(task))
        (plans,) = masked.plan(queries, 20)
    finally:
        network.task_actions[task] = before
    assert len(plans) == 2**3
    assert len(np.unique(plans.actions, axis=0)) == 8
    assert set(plans.actions.ravel().tolist()) == {2, 5}


@pytest.mark.parametrize("shared", [False, True])
def test_files_of_either_task_classifier(shared, training, masked, tmp_path):
    kind = TaskModel if shared else MtidTaskModel
    settings = tiny(**({"mtid.mask": "true", "mtid.tasks": "shared"} if shared else {}))
    (masked if shared else training.planner).save(tmp_path)
    files = {f"{kind.part}.safetensors", "mtid.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == files
    loaded = MtidPlanner.load(tmp_path, settings=settings)
    assert isinstance(loaded.task_model, kind)
    assert set(loaded.parameters) == {kind.title, "MTID network"}


def test_tasks_and_horizons_that_cannot_be(world, training, monkeypatch):
    queries = Queries.from_windows(world[1])
    with pytest.raises(DataError, match="the run knows 0 to 11"):
        training.planner.plan(queries.with_task(12), 1)
    monkeypatch.setattr(MtidTaskModel, "train", lambda *_, **__: pytest.fail("training was begun"))
    with pytest.raises(ConfigError, match="horizon 3: MTID with 4 levels") as caught:
        fit(world, **{"mtid.widths": "[16, 16, 16, 16]"})
    assert caught.value.setting == "mtid.widths"
