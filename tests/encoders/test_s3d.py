"""The S3D network against its list of tensors and against an independent evaluation in NumPy."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cefito.encoders.frames import Sampling
from cefito.encoders.s3d import S3D, S3DEncoder, load_s3d
from cefito.errors import RunError
from cefito.files import sha256
from refusals import refusal
from traps import Trap

# Every tensor of the released checkpoint as [name, shape, type].
LISTED = json.loads((Path(__file__).parent / "s3d_state_dict.json").read_text())


def random_state(seed=0):
    """Random tensors of the listed names and shapes, scaled so that signals do not vanish."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape, kind in LISTED:
        if name == "text_module.word_embd.weight":
            shape = [3, 300]
        values = torch.randn(shape, generator=generator)
        if kind == "int64":
            values = torch.tensor(7)
        elif ".bn" in name and name.endswith(("weight", "running_var")):
            values = 0.8 + torch.rand(shape, generator=generator)
        elif len(shape) > 1:
            values *= math.sqrt(2 / math.prod(shape[1:]))
        else:
            values *= 0.1
        state[name] = values
    return state


@pytest.fixture(scope="module")
def state():
    return random_state()


@pytest.fixture(scope="module")
def released(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("s3d") / "s3d_howto100m.pth"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def network(released):
    return load_s3d(released)


def clips(*shape, seed=1):
    """Random pixels, the first clip the darkest."""
    brightness = torch.linspace(0.3, 1, shape[0])[:, None, None, None, None]
    return brightness * torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


class Slow:
    """The network once more, in float64 NumPy, from the tensors and the description alone."""

    def __init__(self, state):
        self.state = {name: tensor.double().numpy() for name, tensor in state.items()}

    def __call__(self, clips):
        x = self.unit("conv1", self.cells(clips.double().numpy()), (1, 2, 2))[:, :, 1:, 1:, 1:]
        x = self.pool(x, (1, 3, 3), (1, 2, 2))
        x = self.separable("conv_2c", self.unit("conv_2b", x))
        x = self.pool(self.gate("gating", x), (1, 3, 3), (1, 2, 2))
        for name in ("mixed_3b", "mixed_3c"):
            x = self.mixed(name, x)
        x = self.pool(x, (3, 3, 3), (2, 2, 2))
        for name in ("mixed_4b", "mixed_4c", "mixed_4d", "mixed_4e", "mixed_4f"):
            x = self.mixed(name, x)
        x = self.pool(x, (2, 2, 2), (2, 2, 2))
        for name in ("mixed_5b", "mixed_5c"):
            x = self.mixed(name, x)
        mean = x.reshape(*x.shape[:2], -1).mean(-1)
        return mean @ self.state["fc.weight"].T + self.state["fc.bias"]

    @staticmethod
    def cells(x):
        channels = [
            x[:, colour, time::2, row::2, column::2]
            for time, row, column in itertools.product((0, 1), repeat=3)
            for colour in range(3)
        ]
        return np.stack(channels, axis=1)

    def unit(self, place, x, padding=(0, 0, 0), number=1):
        weight = self.state[f"{place}.conv{number}.weight"]
        x = np.pad(x, [(0, 0), (0, 0), *((size, size) for size in padding)])
        sizes = [
            size - kernel + 1 for size, kernel in zip(x.shape[2:], weight.shape[2:], strict=True)
        ]
        y = np.zeros((len(x), len(weight), *sizes))
        for t, h, w in itertools.product(*map(range, weight.shape[2:])):
            part = x[:, :, t : t + sizes[0], h : h + sizes[1], w : w + sizes[2]]
            y += np.einsum("oc,bcthw->bothw", weight[:, :, t, h, w], part, optimize=True)
        gain, shift, mean, variance = (
            self.state[f"{place}.bn{number}.{name}"][:, None, None, None]
            for name in ("weight", "bias", "running_mean", "running_var")
        )
        return np.maximum((y - mean) / np.sqrt(variance + 1e-5) * gain + shift, 0)

    def separable(self, place, x):
        return self.unit(place, self.unit(place, x, (0, 1, 1)), (1, 0, 0), number=2)

    def gate(self, place, x):
        mean = x.reshape(*x.shape[:2], -1).mean(-1)
        scores = mean @ self.state[f"{place}.fc.weight"].T + self.state[f"{place}.fc.bias"]
        return x / (1 + np.exp(-scores))[:, :, None, None, None]

    def mixed(self, name, x):
        branches = [
            self.unit(f"{name}.conv_b0", x),
            self.separable(f"{name}.conv_b1_b", self.unit(f"{name}.conv_b1_a", x)),
            self.separable(f"{name}.conv_b2_b", self.unit(f"{name}.conv_b2_a", x)),
            self.unit(f"{name}.conv_b3_b", self.pool(x, (3, 3, 3), (1, 1, 1))),
        ]
        return np.concatenate(
            [
                self.gate(f"{name}.gating_b{number}", branch)
                for number, branch in enumerate(branches)
            ],
            axis=1,
        )

    @staticmethod
    def pool(x, kernel, stride):
        cells = [max(k - s, 0) for k, s in zip(kernel, stride, strict=True)]
        x = np.pad(x, [(0, 0), (0, 0), *((count // 2, count - count // 2) for count in cells)])
        sizes = [
            math.ceil((size - k) / s) + 1
            for size, k, s in zip(x.shape[2:], kernel, stride, strict=True)
        ]
        y = np.empty((*x.shape[:2], *sizes))
        place: tuple[Any, ...]
        for place in itertools.product(*map(range, sizes)):
            window: tuple[Any, ...] = tuple(
                slice(i * s, i * s + k) for i, s, k in zip(place, stride, kernel, strict=True)
            )
            y[(..., *place)] = x[(..., *window)].max(axis=(2, 3, 4))
        return y


def test_names_shapes_and_types_are_those_listed():
    own = [
        (name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in S3D().state_dict().items()
    ]
    assert own == [
        (name, shape, kind) for name, shape, kind in LISTED if not name.startswith("text_module.")
    ]
    assert len(LISTED) - len(own) == 5


def test_every_tensor_is_loaded(network, state):
    loaded = network.state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in loaded)
    assert not network.training


def test_equals_the_slow_reference(network, state):
    # odd sizes on the way down: every pool in ceil mode has a cut window
    batch = clips(2, 3, 20, 40, 36)
    wanted = Slow(state)(batch)
    with torch.inference_mode():
        found = network(batch)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert np.abs(wanted[0] - wanted[1]).max() > 0.01  # the input matters


def test_encoder(network, released):
    encoder = S3DEncoder(released, sampling=Sampling(frames=16, rate=16, size=32))
    assert encoder.describe() == {
        "model": "s3d",
        "weights": sha256(released),
        "file": str(released.resolve()),
    }
    batch = clips(2, 3, 16, 32, 32)
    found = encoder.encode(batch)
    with torch.inference_mode():
        np.testing.assert_array_equal(found, network(batch).numpy())
    assert found.dtype == np.float32
    assert S3DEncoder(released).sampling == Sampling(frames=32, rate=32, size=224)


def refused(path):
    message = refusal(RunError, load_s3d, path)
    assert message.startswith(f"{path}: ")
    assert "Fetch s3d_howto100m.pth by 'cefito data download s3d" in message
    return message


def test_checkpoints_of_other_names_or_shapes(state, tmp_path):
    path = tmp_path / "other.pth"
    lacking = {name: value for name, value in state.items() if name != "conv1.bn1.bias"}
    torch.save(lacking | {"conv_2b.bn1.weight": "ones", "more": torch.zeros(1)}, path)
    assert "is not the S3D network" in refused(path)
    other = {"fc.weight": torch.zeros(512, 1000)}, {"conv_2b.bn1.weight": "ones"}, {3: "three"}
    for change in other:
        torch.save(state | change, path)
        assert "is not the S3D network" in refused(path)


@pytest.mark.nightly
def test_files_of_other_kinds(tmp_path, released):
    assert "no such file" in refused(tmp_path / "nowhere.pth")
    assert "it is a folder" in refused(tmp_path)
    path = tmp_path / "file.pth"
    path.write_bytes(released.read_bytes()[:100_000])
    assert "is truncated or not a checkpoint" in refused(path)
    old = tmp_path / "old.pth"  # of PyTorch before 1.6: a pickle, which may end in any name
    torch.save({"fc.weight": torch.zeros(2)}, old, _use_new_zipfile_serialization=False)
    for size in range(0, old.stat().st_size, 3):
        path.write_bytes(old.read_bytes()[:size])
        refused(path)
    torch.save([torch.zeros(2)], path)
    assert "is not the S3D network" in refused(path)


@pytest.mark.parametrize(
    "save",
    [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))],
    ids=["torch", "pickle"],
)
def test_pickled_code_is_not_run(tmp_path, save):
    path, trap = tmp_path / "evil.pth", tmp_path / "ran"
    save({"fc.weight": Trap(trap)}, path)
    refused(path)
    assert not trap.exists()
