import ctypes
import resource
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cefito.cli.options import RecordingOptions
from cefito.errors import ConfigError, RunError
from cefito.planners.kepp.planner import StepModel
from cefito.planners.methods import METHODS
from cefito.planners.shared.task_model import TaskModel
from cefito.runtime import (
    SimulationStream,
    Stream,
    check_seed,
    generator_for,
    named_stream,
    pick_device,
    return_memory,
    weights_to_come,
)


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device() == pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    with pytest.raises(RunError, match=r"'cuda:1': PyTorch cannot compute there"):
        pick_device("cuda:1")
    with pytest.raises(RunError, match=r"device 'abacus': .* auto, cpu") as caught:
        pick_device("abacus")
    assert caught.value.setting == "device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RunError, match=r"'cuda:2': PyTorch cannot compute there"):
        pick_device("cuda:2")
    assert pick_device() == torch.device("cuda")
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("cuda:1") == torch.device("cuda:1")


def test_the_gpu_of_a_mac_serves_what_needs_no_float64(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(RunError, match="PyTorch cannot compute there"):
        pick_device("mps", float64=False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps", float64=False) == torch.device("mps")
    assert RecordingOptions(device="mps").reading()["device"] == "mps"  # of films
    with pytest.raises(RunError, match=r"no numbers of 64 bits.*Use 'cpu'") as caught:
        pick_device("mps")
    assert caught.value.setting == "device"


def test_weights_to_come_have_shapes_alone():
    state = torch.get_rng_state()
    with weights_to_come():
        network = torch.nn.Linear(10**6, 10**6)
        drawn = torch.nn.init.normal_(tensor=torch.zeros(2, device="cpu"))
    assert network.weight.is_meta
    assert network.weight.shape == (10**6, 10**6)
    assert not drawn.any()
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.nn.Linear(2, 3).weight.is_meta


def test_seeds():
    for seed in (0, 1, 2**63 - 1):
        check_seed(seed)
        generator_for("cpu", seed)
    for seed in (-1, 2**63):
        with pytest.raises(ConfigError, match=rf"seed {seed}: expected a whole number") as caught:
            check_seed(seed)
        assert caught.value.setting == "seed"


def draws(*parts):
    return tuple(torch.rand(4, generator=generator_for("cpu", *parts)).tolist())


def test_a_generator_gives_the_same_again_and_leaves_the_global_one_alone():
    state = torch.get_rng_state()
    numpy_state = np.random.get_state(legacy=True)[1].tolist()  # noqa: NPY002
    assert draws(3, 1) == draws(3, 1)
    assert torch.equal(state, torch.get_rng_state())
    assert np.random.get_state(legacy=True)[1].tolist() == numpy_state  # noqa: NPY002


@pytest.mark.parametrize(
    ("parts", "seed"),
    [
        ((0,), 7896617691693857887),
        ((0, 3), 3291213472928352369),
        ((7, 12, Stream.DRAWS), 7107763118556285816),
    ],
)
def test_what_is_drawn_stays_what_it_was(parts, seed):
    """Only so do the weights of earlier versions come back."""
    assert generator_for("cpu", *parts).initial_seed() == seed


@pytest.mark.parametrize("streams", [Stream, SimulationStream])
def test_streams_differ(streams):
    assert len({int(stream) for stream in streams}) == len(streams.__members__)
    for one, other in combinations(streams, 2):
        assert draws(0, one) != draws(0, other)


def test_numbers_of_streams_stay():
    """Trained weights depend on them."""
    kinds: list[Any] = [method.planner for method in METHODS.values()]
    kinds += [TaskModel, StepModel]
    streams = {kind.title: kind.stream for kind in kinds if getattr(kind, "stream", None)}
    assert streams == {
        **{"task classifier": 2, "step model": 5, "ViterbiPlanNet": 6, "PDPP network": 8},
        **{"SCHEMA network": 11, "PlanLLM network": 12, "P3IV": 15},
        **{"KEPP step network": 20, "KEPP plan network": 21},
        "MTID network": 22,
    }
    assert (Stream.ORDER, Stream.DRAWS) == (0, 1)
    assert named_stream("my network") == 3509553291
    simulated = {
        "CAMERA": 1,
        "STYLES": 2,
        "NOISE": 3,
        "CONFUSION": 4,
        "SPREAD": 5,
        "WORLD": 100,
        "FILMS": 101,
    }
    assert {stream.name: int(stream) for stream in SimulationStream} == simulated


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_freed_memory_goes_back_to_the_system():
    held = [bytes([number % 251]) * 100_000 for number in range(600)]  # below what is mapped alone
    last = bytes(1000)
    del held
    before = resident()
    return_memory()
    assert resident() <= before
    assert last is not None


def test_systems_that_keep_what_is_freed(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)  # not asked there
    return_memory()
