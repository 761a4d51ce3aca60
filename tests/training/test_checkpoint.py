import errno
import os
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.training.checkpoint import TrainingState, load_checkpoint, load_weights, save_checkpoint


def fresh(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module.register_buffer("mean", torch.randn(3))
    return module, torch.optim.AdamW(module.parameters(), lr=0.1)


def step(module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    module(torch.ones(5, 3)).square().sum().backward()
    optimiser.step()


def state_of(module: nn.Module) -> TrainingState:
    average = {name: tensor + 1 for name, tensor in module.state_dict().items()}
    best = {name: tensor + 2 for name, tensor in module.state_dict().items()}
    return TrainingState(
        key="k",
        epoch=3,
        step=7,
        best=[1.5, 0.25],
        best_epoch=2,
        waited=1,
        average=average,
        best_weights=best,
    )


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, nn.Module, torch.optim.Optimizer]:
    module, optimiser = fresh(0)
    step(module, optimiser)
    save_checkpoint(tmp_path / "checkpoint.safetensors", state_of(module), module, optimiser)
    return tmp_path / "checkpoint.safetensors", module, optimiser


def test_what_is_saved_comes_back_and_goes_on_alike(saved):
    path, module, optimiser = saved
    other, its_optimiser = fresh(1)
    state = load_checkpoint(path, "k", other, its_optimiser)
    expected = state_of(module)
    assert (
        state.epoch,
        state.step,
        state.best,
        state.best_epoch,
        state.waited,
        state.finished,
    ) == (3, 7, [1.5, 0.25], 2, 1, False)
    assert_equal(state.average, expected.average)
    assert_equal(state.best_weights, expected.best_weights)
    assert_equal(other.state_dict(), module.state_dict())
    for _ in range(3):
        step(module, optimiser)
        step(other, its_optimiser)
        assert_equal(other.state_dict(), module.state_dict())


def test_another_key_is_refused(saved):
    path, _, _ = saved
    module, optimiser = fresh(1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(RunError, match="another data set, other settings or another seed"):
        load_checkpoint(path, "other", module, optimiser)
    assert_equal(module.state_dict(), before)


def test_damaged_files(saved):
    path, module, optimiser = saved
    content = path.read_bytes()
    for part in (b"", content[:100], content[:-20], b"nonsense" * 10):
        path.write_bytes(part)
        with pytest.raises(
            RunError, match=r"truncated or not a safetensors file.*Remove it to train"
        ):
            load_checkpoint(path, "k", module, optimiser)
    path.unlink()
    with pytest.raises(RunError, match="no such file"):
        load_checkpoint(path, "k", module, optimiser)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"state": "not json"},
        {"state": "[]"},
        {"state": '{"epoch": 1}'},
        {"state": '{"key": "k", "new": 1}'},
    ],
)
def test_files_that_are_no_checkpoint(tmp_path, metadata):
    path = tmp_path / "file.safetensors"
    write_tensors(path, {"model.x": torch.zeros(1)}, metadata)
    with pytest.raises(RunError, match="not a checkpoint of this version"):
        load_checkpoint(path, "k", *fresh(0))


def test_unknown_parts_are_refused(tmp_path):
    path = tmp_path / "file.safetensors"
    for name in ("strange.x", "x"):
        write_tensors(path, {name: torch.zeros(1)}, {"state": '{"key": "k"}'})
        with pytest.raises(RunError, match="not a checkpoint of this version"):
            load_checkpoint(path, "k", *fresh(0))


def test_a_full_disk_leaves_the_previous_checkpoint(saved, monkeypatch):
    path, module, optimiser = saved
    before = path.read_bytes()
    step(module, optimiser)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left on device.*Free some disk space"):
        save_checkpoint(path, state_of(module), module, optimiser)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_bound_on_the_size_of_files_leaves_the_previous_checkpoint(saved):
    """A real refusal in the middle of a write."""
    path, module, optimiser = saved
    before = path.read_bytes()
    step(module, optimiser)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(RunError, match="could not be written"):
            save_checkpoint(path, state_of(module), module, optimiser)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    load_checkpoint(path, "k", *fresh(1))


def test_weights_that_do_not_fit():
    module, _ = fresh(0)
    weights = dict(module.state_dict())
    with pytest.raises(RunError, match=r"here: tensor '1\.bias' is missing"):
        load_weights(
            module, {name: tensor for name, tensor in weights.items() if name != "1.bias"}, "here"
        )
    with pytest.raises(RunError, match="here: tensor 'more' is unknown"):
        load_weights(module, {**weights, "more": torch.zeros(1)}, "here")
    with pytest.raises(RunError, match=r"tensor 'mean' has shape \[4\]; expected \[3\]"):
        load_weights(module, {**weights, "mean": torch.zeros(4)}, "here")


def test_nothing_is_pickled(saved):
    path, _, _ = saved
    tensors, metadata = load_tensors(path, "pt", "", RunError)
    assert set(metadata) == {"state"}
    assert {name.split(".")[0] for name in tensors} == {"model", "average", "best", "optimiser"}
