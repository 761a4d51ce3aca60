import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from cefito.errors import RunError
from cefito.files import load_tensors, load_weights, write_tensors
from cefito.training.checkpoint import (
    MetricsLog,
    TrainingState,
    load_checkpoint,
    read_metrics,
    save_checkpoint,
)
from learned import same_tensors, same_weights


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
    assert (state.epoch, state.step, state.finished) == (3, 7, False)
    assert (state.best, state.best_epoch, state.waited) == ([1.5, 0.25], 2, 1)
    assert same_tensors(state.average, expected.average)
    assert same_tensors(state.best_weights, expected.best_weights)
    assert same_weights(other, module)
    for _ in range(3):
        step(module, optimiser)
        step(other, its_optimiser)
        assert same_weights(other, module)


def test_another_key_is_refused(saved):
    path, _, _ = saved
    module, optimiser = fresh(1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(RunError, match="another data set, other settings"):
        load_checkpoint(path, "other", module, optimiser)
    assert same_tensors(module.state_dict(), before)


def test_damaged_files(saved):
    path, module, optimiser = saved
    content = path.read_bytes()
    for part in (b"", content[:100], content[:-20], b"nonsense" * 10):
        path.write_bytes(part)
        with pytest.raises(RunError, match=r"not a safetensors file"):
            load_checkpoint(path, "k", module, optimiser)
    path.unlink()
    with pytest.raises(RunError, match="no such file"):
        load_checkpoint(path, "k", module, optimiser)


@pytest.mark.parametrize("state", [None, "not json", "[]", '{"key": "k", "new": 1}'])
def test_files_that_are_no_checkpoint(tmp_path, state):
    path = tmp_path / "file.safetensors"
    write_tensors(path, {"model.x": torch.zeros(1)}, {"state": state} if state else {})
    with pytest.raises(RunError, match="not a checkpoint of this version"):
        load_checkpoint(path, "k", *fresh(0))


def test_a_bound_on_the_size_of_files_leaves_the_previous_checkpoint(saved):
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
    without = {name: tensor for name, tensor in weights.items() if name != "1.bias"}
    with pytest.raises(RunError, match=r"here: tensor '1\.bias' is missing"):
        load_weights(module, without, "here")
    with pytest.raises(RunError, match="here: tensor 'more' is unknown"):
        load_weights(module, {**weights, "more": torch.zeros(1)}, "here")
    with pytest.raises(RunError, match=r"'mean' has shape \[4\] .* \[3\]"):
        load_weights(module, {**weights, "mean": torch.zeros(4)}, "here")


@pytest.mark.parametrize("name", ["model.mean", "average.0.bias", "optimiser.1.exp_avg"])
def test_a_changed_checkpoint_is_refused(saved, name):
    path, *_ = saved
    tensors, metadata = load_tensors(path, "pt", "")
    tensors[name] = tensors[name] + 1
    write_tensors(path, tensors, metadata)
    with pytest.raises(RunError, match=r"checkpoint\.safetensors: has changed since it"):
        load_checkpoint(path, "k", *fresh(1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"epoch": 1}\n[]\n', "line 2: expected an object of finite numbers"),
        ('{"epoch": 1}\n{"epoch": 3}\n', "line 2: is of epoch 3; expected 2"),
        ('{"epoch": 1.0}\n', "line 1: is of epoch 1.0; expected 1"),
        ('{"loss": 1}\n', "line 1: is of epoch None"),
        ('{"epoch": 1, "loss": NaN}\n', "line 1: expected an object of finite numbers"),
        ('{"epoch": 1}\n{"epo\n{"epoch": 3}\n', "line 2: not valid JSON"),
        ('{"epoch": 1}\n', "ends with epoch 1, but the checkpoint beside it is of epoch 2"),
        ("\udcff", "cannot be read"),
    ],
)
def test_lines_of_metrics_that_do_not_fit_are_refused_by_name(tmp_path, text, message):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RunError, match=rf"metrics\.jsonl.*{message}"):
        MetricsLog(tmp_path, 2)


def test_metrics_go_on_where_earlier_lines_were_removed(tmp_path):
    log = MetricsLog(tmp_path, 2)
    log.write({"epoch": 3})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"epoch": 3}]
    MetricsLog(tmp_path, 3)
