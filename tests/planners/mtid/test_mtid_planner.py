import numpy as np
import pytest
import torch

from cefito.errors import ConfigError, DataError
from cefito.planners.base import Queries
from cefito.planners.diffusion.planner import DiffusionLoss
from cefito.planners.methods import load_config
from cefito.planners.mtid.planner import MtidNetwork, MtidPlanner, MtidTaskModel
from cefito.planners.network import data_shape
from cefito.planners.shared.task_model import TaskModel
from cefito.runtime import Processes, generator_for
from drawn import stirred

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


def tiny(**overrides):
    return load_config("small", method="mtid", overrides={**TINY, **overrides}).settings


def fit(world, **settings):
    return MtidPlanner.fit(*world, settings=tiny(**settings), seed=0)


@pytest.fixture(scope="module")
def training(world):
    return fit(world)


@pytest.fixture(scope="module")
def masked(world):
    return fit(world, **{"mtid.mask": "true", "mtid.tasks": "shared"}).planner


# the loss


@pytest.mark.parametrize("mask", [False, True])
def test_loss_against_a_slow_loop(world, mask):
    train, val = world
    quiet = {f"mtid.training.augmentation.{name}": 0.0 for name in ("noise", "swap")}
    chosen = {"mtid.mask": str(mask).lower(), "mtid.ends": 6.0, "mtid.latent_dropout": 0.0}
    config, shape = tiny(**chosen, **quiet).mtid, data_shape(train)
    network = MtidNetwork(config, shape)
    network.reset(generator_for("cpu", 0))
    stirred(network, 0.1)
    draws = generator_for("cpu", 1)
    rows = torch.tensor([3, 0, 11])
    if mask:
        network.task_actions.copy_(torch.rand(network.task_actions.shape, generator=draws) < 0.5)
        for row in rows.tolist():
            network.task_actions[train.tasks[row], train.actions[row]] = True
    loss = DiffusionLoss(network, train, val, train.tasks, val.tasks)
    with torch.no_grad():
        term = loss.terms(rows, generator_for("cpu", 2), Processes())["squared_error"]
        draws = generator_for("cpu", 2)
        times = torch.randint(1, 21, (3,), generator=draws)
        noise = torch.randn(3, 3, shape.actions, generator=draws)
        total = 0.0
        for place, row in enumerate(rows.tolist()):
            one = slice(row, row + 1)
            project = network.projection(
                *(torch.from_numpy(part[one]) for part in (train.tasks, train.initial, train.goal))
            )
            signal = float(network.diffusion.signal[times[place]])
            allowed = [
                not mask or bool(network.task_actions[train.tasks[row], action])
                for action in range(shape.actions)
            ]
            matrix = project.given.clone()
            for step, action in np.ndindex(3, shape.actions):
                clean = float(train.actions[row, step] == action)
                value = signal**0.5 * clean + (1 - signal) ** 0.5 * noise[place, step, action]
                matrix[0, step, shape.tasks + action] = value if allowed[action] else 0
            restored = network(matrix, times[[place]], network.latents(project))[0]
            for step, action in np.ndindex(3, shape.actions):
                clean = float(train.actions[row, step] == action)
                error = (float(restored[step, shape.tasks + action]) - clean) ** 2
                total += (6, 1, 6)[step] * error if allowed[action] else 0
    assert float(term.sum) == pytest.approx(total, rel=1e-4)
    assert int(term.count) == 3


# the mask


def test_the_mask_is_of_the_training_windows(world, masked):
    train, _ = world
    known = masked.network.task_actions
    for task in range(len(train.taxonomy.tasks)):
        expected = set(train.actions[train.tasks == task].ravel().tolist())
        every = set(range(len(train.taxonomy.actions)))
        assert set(known[task].nonzero()[:, 0].tolist()) == (expected or every)


def test_masked_plans_are_of_their_task(world, masked):
    train, val = world
    queries = Queries.from_windows(val, oracle_task=True)
    for plan, task in zip(masked.plan(queries, 5), val.tasks, strict=True):
        assert set(plan.actions.ravel().tolist()) <= set(train.actions[train.tasks == task].flat)
        assert np.isfinite(plan.energies).all()


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


# files


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
