"""How pictures are resized, cropped and normalised, against Pillow."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from cefito.encoders.preparation import Preparation
from cefito.errors import ConfigError

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def slow_preparation(image, resize, crop, mean, std):
    """Pillow resizes each channel in floating point; the middle is cut out pixel by pixel."""
    height, width = image.shape[1:]
    scale = resize / min(height, width)
    size = (
        resize if height <= width else int(height * scale),
        resize if width <= height else int(width * scale),
    )
    channels = [
        np.array(Image.fromarray(channel.numpy()).resize(size[::-1], Image.Resampling.BICUBIC))
        for channel in image
    ]
    top, left = (size[0] - crop) // 2, (size[1] - crop) // 2
    return np.array(
        [
            [
                [
                    (min(max(channel[top + row, left + column], 0), 1) - mean[place]) / std[place]
                    for column in range(crop)
                ]
                for row in range(crop)
            ]
            for place, channel in enumerate(channels)
        ]
    )


@pytest.mark.parametrize("size", [(40, 57), (200, 45), (12, 17)])
def test_preparation_against_a_slow_reference(size):
    image = torch.rand(3, *size, generator=torch.Generator().manual_seed(5))
    how = Preparation(
        resize=32, crop=(28, 28), resampling="bicubic", mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0)
    )
    np.testing.assert_allclose(
        how.apply(image[None])[0], slow_preparation(image, 32, 28, how.mean, how.std), atol=1e-4
    )


@pytest.mark.parametrize(
    ("resize", "crop", "size"),
    [
        ((20, 30), None, (20, 30)),
        (None, (20, 30), (20, 30)),
        (20, None, (20, 28)),
        (None, (50, 60), (50, 60)),
    ],
)
def test_preparation_without_some_of_its_parts(resize, crop, size):
    how = Preparation(
        resize=resize, crop=crop, resampling="bilinear", mean=(0, 0, 0), std=(1, 1, 1)
    )
    out = how.apply(torch.full((2, 3, 40, 57), 0.5))
    assert out.shape == (2, 3, *size)
    if crop == (50, 60):  # padded with black, the rest untouched
        assert float(out.sum()) == 2 * 3 * 40 * 57 * 0.5
        assert float(out[:, :, 5:45, 1:58].min()) == 0.5
    else:
        torch.testing.assert_close(out, torch.full_like(out, 0.5))


@pytest.mark.parametrize(
    ("value", "resize", "crop"),
    [
        ({"size": 32, "crop_size": 28}, 32, (28, 28)),
        ({"size": {"height": 20, "width": 30}, "do_center_crop": False}, (20, 30), None),
        ({"size": 32, "do_resize": False}, None, None),
    ],
)
def test_forms_of_the_configuration(tmp_path, value, resize, crop):
    value = {**value, "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "resample": 2}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": value}))
    how = Preparation.read(tmp_path)
    assert (how.resize, how.crop, how.resampling) == (resize, crop, "bilinear")
    assert how.mean == tuple(CLIP_MEAN)
    first = tmp_path / "preprocessor_config.json"  # of the two files
    first.write_text(json.dumps({**value, "image_mean": [0, 0, 0]}))
    assert Preparation.read(tmp_path).mean == (0, 0, 0)
    first.write_text(json.dumps({**value, "do_normalize": False}))
    plain = Preparation.read(tmp_path)
    assert (plain.mean, plain.std) == ((0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize(
    "change",
    [
        *({"size": {"longest_edge": 3}}, {"resample": 1}, {"image_mean": [0.5]}),
        *({"image_std": [1, 0, 1]}, {"do_center_crop": True, "crop_size": None}),
    ],
)
def test_unusable_configurations(tmp_path, change):
    value = {"size": 32, "image_mean": CLIP_MEAN, "image_std": CLIP_STD, **change}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(value))
    with pytest.raises(ConfigError, match=r"_config\.json: does not say how pictures are"):
        Preparation.read(tmp_path)
