import pytest
from small_methods import small_method

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
