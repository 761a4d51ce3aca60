import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch

from cefito.data import cut_windows
from cefito.data.action_space import action_space
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.field.settings import ProposalConfig
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.settings import load_config
from cefito.planners.shared.proposal_model import ProposalModel
from cefito.training.settings import OptimiserConfig, TrainingConfig
from cefito.training.trainer import TrainingResult


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Windows, Windows]:
    """Training and validation windows of a small embedded world, T = 3."""
    dataset = write_world(
        tmp_path_factory.mktemp("data") / "world",
        seed=0,
        knobs=WorldKnobs(train=72, val=24, test=12),
    )
    return tuple(cut_windows(dataset, horizon=3, split=split) for split in ("train", "val"))


def allowed(train: Windows) -> dict[int, tuple[int, ...]]:
    return dict(enumerate(action_space(train, "taxonomy").actions))


CONFIG = ProposalConfig(hidden=(16, 12), action_dim=8)


def fit(
    world: tuple[Windows, Windows],
    *,
    seed: int = 0,
    actions: dict[int, tuple[int, ...]] | None = None,
    context: TrainingContext = TrainingContext(),
    **optimiser: object,
) -> tuple[ProposalModel, TrainingResult]:
    optimiser = {"epochs": 2, "learning_rate": 2e-3, "batch_size": 64, **optimiser}
    return ProposalModel.fit(
        *world,
        config=CONFIG,
        training=TrainingConfig(optimiser=OptimiserConfig(**optimiser)),
        actions=allowed(world[0]) if actions is None else actions,
        seed=seed,
        context=context,
    )


def fitted(world: tuple[Windows, Windows], **options: object) -> ProposalModel:
    return fit(world, **options)[0]


def load(folder: Path, config: ProposalConfig = CONFIG) -> ProposalModel:
    return ProposalModel.load(folder, config=config)


def frequent_accuracy(train: Windows, val: Windows) -> float:
    """Per cent of validation steps whose action is the commonest of task and step in training."""
    right = []
    for task, actions in zip(val.tasks, val.actions, strict=True):
        of_task = train.actions[train.tasks == task]
        right += [
            np.bincount(of_task[:, step]).argmax() == action for step, action in enumerate(actions)
        ]
    return 100 * float(np.mean(right))


def test_training_lowers_the_loss_and_beats_the_frequencies(world, tmp_path):
    config = load_config("small", method="pkg").settings
    _, result = ProposalModel.fit(
        *world,
        config=config.pkg.network,
        training=config.pkg.training,
        actions=allowed(world[0]),
        seed=0,
        context=TrainingContext(folder=tmp_path),
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["cross_entropy"] < 0.6 * lines[0]["cross_entropy"]
    assert result.scores[0] == max(
        line["val_step_log_likelihood"] for line in lines if "val_step_log_likelihood" in line
    )
    assert result.scores[1] > frequent_accuracy(*world) + 10


def test_logits(world):
    train, val = world
    model, result = fit(world)
    logits = model.logits(Queries.from_windows(val))
    assert logits.shape == (len(val), 3, len(val.taxonomy.actions))
    assert logits.dtype == np.float32
    allowed_at = np.zeros((len(val.taxonomy.tasks), logits.shape[2]), bool)
    for task, actions in allowed(train).items():
        allowed_at[task, list(actions)] = True
    best = np.where(allowed_at[val.tasks][:, None], logits, -np.inf).argmax(axis=2)
    assert 100 * (best == val.actions).mean() == pytest.approx(result.scores[1])
    np.testing.assert_array_equal(
        model.network.mean.numpy(),
        torch.from_numpy(np.concatenate([train.initial, train.goal])).mean(dim=0).numpy(),
    )


def test_same_seed_same_weights(world):
    one, same, other = (fitted(world, seed=seed).network.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(tensor, same[name]) for name, tensor in one.items())
    assert not torch.equal(one["linear.weight"], other["linear.weight"])


def test_what_is_saved_gives_the_same_logits(world, tmp_path):
    model = fitted(world)
    model.save(tmp_path)
    loaded = load(tmp_path)
    queries = Queries.from_windows(world[1])
    np.testing.assert_array_equal(model.logits(queries), loaded.logits(queries))
    assert [path.name for path in tmp_path.iterdir()] == ["proposal.safetensors"]


def test_a_checkpoint_of_other_actions_is_refused(world, tmp_path):
    def kept(key: str, **options: object) -> TrainingResult:
        context = TrainingContext(folder=tmp_path, key=key)
        return fit(world, context=context, **options)[1]

    assert not kept("a").resumed
    assert kept("a").resumed
    for actions, key in (({}, "a"), (allowed(world[0]), "b")):
        with pytest.raises(RunError):
            kept(key, actions=actions)


def test_models_are_frozen(world):
    model = fitted(world, epochs=1)
    with pytest.raises(FrozenInstanceError):
        model.network = None


def test_observations_of_another_dimension(world):
    queries = Queries(initial=np.zeros((2, 5), np.float32), goal=np.zeros((2, 5), np.float32))
    with pytest.raises(RunError, match="observations have 5 features; this run was trained on"):
        fitted(world).logits(queries)


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\x10\0\0\0\0\0\0\0{"])
def test_missing_and_damaged_files_name_themselves(content, tmp_path):
    if content is not None:
        (tmp_path / "proposal.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"proposal\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"bias": None},
        {"bias": torch.zeros(4)},
        {"mean": torch.zeros(())},
        {"linear.weight": None},
        {"more": torch.zeros(1)},
        {"fc1.bias": torch.zeros(3)},
    ],
)
def test_files_of_something_else(change, world, tmp_path):
    fitted(world, epochs=1).save(tmp_path)
    path = tmp_path / "proposal.safetensors"
    tensors, _ = load_tensors(path, "pt", "", RunError)
    tensors |= change
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if tensor is not None})
    with pytest.raises(RunError, match=r"proposal\.safetensors"):
        load(tmp_path)


def test_file_of_another_configuration(world, tmp_path):
    fitted(world, epochs=1).save(tmp_path)
    with pytest.raises(RunError, match="shape"):
        load(tmp_path, ProposalConfig(hidden=(16, 13), action_dim=8))
