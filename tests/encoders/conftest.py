"""Videos for the tests of encoders, and an encoder that needs no weights."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cefito.encoders.frames import Sampling
from tiny_models import tiny_clip, tiny_dinov2, tiny_t5

TEXTS = ["pour water", "jack up", "cut", "whisk the mixture", "jack down the car", "pour water"]


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of a tiny CLIP, DINOv2 and T5, randomly initialised."""
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("models")
    tiny_clip(root / "clip")
    tiny_dinov2(root / "dinov2")
    tiny_t5(root / "t5", [*TEXTS, "task to"])
    return root


@pytest.fixture
def copied(models, tmp_path):
    """Copies a model, so that it can be changed."""

    def copy(name):
        shutil.copytree(models / name, tmp_path / name)
        return tmp_path / name

    return copy


def write(path, seconds, *, rate=10, shift=0):
    """A disc that runs through a picture which becomes brighter second by second."""
    drawn = pytest.importorskip("drawn_videos")
    rows, columns = np.mgrid[:32, :48]

    def picture(number):
        pixels = np.full((32, 48, 3), 20 + shift + 12 * (number // rate), np.uint8)
        pixels[(rows - 16) ** 2 + (columns - 12 - number % 24) ** 2 < 25] = (200, 40, 90)
        return pixels

    return drawn.write_video(path, drawn.steady(seconds, rate), picture=picture)


@pytest.fixture(scope="session")
def write_video():
    """Writes a video of so many seconds to a path."""
    return write


class Stub:
    """Brightness of the first and last picture, and difference of a clip's halves: [B, 3]."""

    sampling = Sampling(frames=4, rate=4, size=32)

    def __init__(self, **changed):
        self.calls = []  # sizes of the batches so far
        self.before = lambda: None  # called before each batch
        self.description = {"model": "stub", "layers": (1, 2)}
        vars(self).update(changed)

    def describe(self):
        return self.description

    def encode(self, clips):
        self.before()
        self.calls.append(len(clips))
        assert clips.shape[1:3] == (3, self.sampling.frames)
        assert clips.dtype == torch.float32
        assert 0 <= clips.min() <= clips.max() <= 1
        each, half = clips.mean(dim=(1, 3, 4)), self.sampling.frames // 2
        return torch.stack(
            [each[:, 0], each[:, -1], each[:, half:].sum(1) - each[:, :half].sum(1)], dim=1
        ).numpy()


@pytest.fixture(scope="session")
def make_stub():
    """Makes a new encoder, with attributes changed."""
    return Stub


@pytest.fixture(scope="session")
def stub():
    """An encoder that is not to be changed."""
    return Stub()


class Log:
    """A progress that remembers."""

    def __init__(self):
        self.works = []

    @contextmanager
    def __call__(self, description, *, total=None):
        work = {"description": description, "total": total, "done": 0.0, "notes": set()}
        self.works.append(work)

        def advance(count=1, *, note=""):
            work["done"] += count
            work["notes"].add(note)

        yield advance


@pytest.fixture
def log():
    return Log()
