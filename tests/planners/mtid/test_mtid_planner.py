from cefito.planners.mtid.planner import MtidPlanner
from cefito.planners.shared.task_model import TaskModel
from planners.small_methods import small_method

KNOBS = {"train": 36, "val": 12, "test": 12, "dim": 12}
TINY = {
    "mtid.widths": "[16]",
    "mtid.steps": 20,
    "mtid.sampling": 4,
    "mtid.layers": 1,
    "mtid.feedforward": 16,
    "mtid.mask": "true",
    "mtid.training.optimiser.epochs": 2,
    "mtid.training.stopping.every": 1,
    "classifier_training.optimiser.epochs": 2,
}
tiny, fit = small_method("mtid", TINY)


def test_files_of_the_network_and_the_task_classifier(world, tmp_path):
    fit(world).planner.save(tmp_path)
    files = {"classifier.safetensors", "mtid.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == files
    loaded = MtidPlanner.load(tmp_path, settings=tiny())
    assert isinstance(loaded.task_model, TaskModel)
    assert set(loaded.parameters) == {"task classifier", "MTID network"}
