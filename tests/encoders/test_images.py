import json
import shutil
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cefito.encoders.images import PretrainedImages, encode_pictures, load_image
from cefito.encoders.video import Pictures, record
from cefito.errors import ConfigError, DataError
from cefito.inference.observer import ObservationRecipe


def picture(height=40, width=57, seed=0):
    """Smooth colours and an edge, 8-bit RGB."""
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    noise = np.random.default_rng(seed).integers(0, 40, (height, width, 3))
    colours = np.stack([rows, columns, 0.5 + 0.5 * np.sin(9 * rows + seed)], axis=-1) * 215
    colours[:, width // 3 : width // 2] = 20
    return Image.fromarray((colours + noise).astype(np.uint8))


def slow_model(folder, pixels, layer):
    """The whole model of transformers, its vision half run as its documentation says."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if not folder.name.startswith("clip"):
            return model(pixel_values=pixels).last_hidden_state[:, 0].numpy()
        token = model.vision_model.post_layernorm(
            model.vision_model(pixel_values=pixels).last_hidden_state[:, 0]
        )
        return (token @ model.visual_projection.weight.T if layer == "projected" else token).numpy()


@pytest.mark.parametrize(
    ("name", "layer", "width"),
    [("clip", "projected", 8), ("clip", "pooled", 16), ("dinov2", None, 16)],
)
@pytest.mark.parametrize("size", [(40, 57), (61, 30)])
def test_against_transformers_own_processors(models, tmp_path, name, layer, width, size):
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(models / name, use_fast=False)
    paths = [tmp_path / f"{seed}.png" for seed in range(2)]
    for seed, path in enumerate(paths):
        picture(size[0], size[1], seed=seed).save(path)
    encoder = PretrainedImages(models / name, layer=layer)
    pixels = processor([Image.open(path) for path in paths], return_tensors="pt")["pixel_values"]
    prepared = torch.cat([encoder.prepared(load_image(path)[None]) for path in paths])
    assert torch.equal(prepared, pixels)
    got = encode_pictures(paths, encoder)
    assert got.shape == (2, width)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, slow_model(models / name, prepared, layer), atol=1e-5)
    assert np.abs(got[0] - got[1]).max() > 0.1  # the tiny model does tell pictures apart


def test_picture_of_a_file(tmp_path):
    picture().save(tmp_path / "a.png")
    image = load_image(tmp_path / "a.png")
    assert image.dtype == torch.float32
    np.testing.assert_array_equal(
        (image * 255).permute(1, 2, 0).numpy().round(), np.array(picture())
    )
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter clockwise turns it upright
    Image.fromarray(np.rot90(np.array(picture())).copy()).save(tmp_path / "a.png", exif=exif)
    assert torch.equal(load_image(tmp_path / "a.png"), image)
    grey = Image.new("L", (5, 4), 51)
    for mode in ("L", "LA", "P", "1", "CMYK", "RGBA"):
        suffix = "jpg" if mode == "CMYK" else "png"
        grey.convert("RGB").convert(mode).save(tmp_path / f"{mode}.{suffix}")
        assert load_image(tmp_path / f"{mode}.{suffix}").shape == (3, 4, 5)


def test_unreadable_pictures(tmp_path, monkeypatch):
    picture().save(tmp_path / "whole.png")
    picture().save(tmp_path / "whole.jpg")
    for suffix in ("png", "jpg"):
        data = (tmp_path / f"whole.{suffix}").read_bytes()
        (tmp_path / f"cut.{suffix}").write_bytes(data[: len(data) // 2])
        with pytest.raises(DataError, match=rf"/cut\.{suffix}: cannot be read"):
            load_image(tmp_path / f"cut.{suffix}")
    (tmp_path / "text.png").write_text("no picture")
    Image.new("I;16", (4, 4)).save(tmp_path / "deep.png")
    for name, message in (
        ("text.png", r"text\.png: cannot be read as a picture"),
        ("none.png", r"none\.png: no such file"),
        ("", "it is a folder"),
        ("deep.png", r"deep\.png: .*has more than 8 bits a channel"),
    ):
        with pytest.raises(DataError, match=message):
            load_image(tmp_path / name)
    for bound in (40 * 57 - 1, 40 * 57 // 3):  # Pillow warns above it and refuses above twice of it
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", bound)
        with pytest.raises(DataError, match=rf"too large \(more than {bound / 1e6:.3g} meg"):
            load_image(tmp_path / "whole.png")


@pytest.mark.parametrize("name", ["clip", "dinov2"])
@pytest.mark.parametrize("size", [(200_000, 1), (1, 200_000), (3_000_000, 1)])
def test_long_pictures_do_not_become_enormous(models, tmp_path, name, size):
    path = tmp_path / "long.png"
    Image.new("1", size).save(path)
    width, height = size
    with pytest.raises(DataError, match=rf"long\.png: .* {width:,} × {height:,} pixels"):
        encode_pictures([path], PretrainedImages(models / name))


@pytest.mark.parametrize("form", ["png", "jpeg", "webp", "tiff"])
def test_damaged_bytes_never_show_a_traceback(tmp_path, form):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(24, 32).save(tmp_path / "a", format=form, exif=exif)
    data = (tmp_path / "a").read_bytes()
    generator = np.random.default_rng(4)
    for number in range(40):
        broken = bytearray(data)
        for place in generator.integers(0, len(data) if number % 2 else 150, 3):
            broken[place] = generator.integers(256)
        (tmp_path / "b").write_bytes(broken)
        with suppress(DataError):  # anything else that is raised or warned of fails the test
            assert load_image(tmp_path / "b").ndim == 3


@pytest.fixture
def pictures(tmp_path):
    """Paths of two pictures, of different sizes."""
    paths = tmp_path / "before.png", tmp_path / "after.jpg"
    for seed, path in enumerate(paths):
        picture(40 + 9 * seed, 57, seed=seed).save(path)
    return paths


def recipe(size, made_with=None):
    return ObservationRecipe(place="RUN", made_with=made_with or {}, seconds=1, size=size)


@pytest.mark.parametrize("name", ["clip", "dinov2"])
def test_observations_from_two_pictures(models, pictures, name):
    encoder = PretrainedImages(models / name)
    both = encode_pictures(pictures, encoder)
    width = both.shape[1]
    for seconds in (1, 3, 5):
        query = recipe(seconds * width).open(str(models / name)).of_pictures(*pictures)
        for row, (found,) in zip(both, (query.initial, query.goal), strict=True):
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, np.concatenate([row] * seconds))


@pytest.mark.parametrize("size", [7, 16])
def test_observations_of_another_size(models, pictures, size):
    with pytest.raises(ConfigError, match=rf"{size} numbers, .* clip gives 8"):
        recipe(size).open(str(models / "clip")).of_pictures(*pictures)


def test_observations_take_the_encoder_of_the_data_set(models, pictures, tmp_path):
    made_with = record(Pictures(PretrainedImages(models / "clip")))
    expected = recipe(8).open(str(models / "clip")).of_pictures(*pictures)
    # the same model elsewhere, under another name, with other files beside
    shutil.copytree(models / "clip", tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("of the hub")
    (tmp_path / "copy" / "vocab.json").write_text("{}")
    copy = PretrainedImages(tmp_path / "copy")
    assert copy.describe()["revision"] != made_with["revision"]
    query = recipe(8, made_with).open(str(tmp_path / "copy")).of_pictures(*pictures)
    np.testing.assert_array_equal(query.goal, expected.goal)
    path = tmp_path / "copy" / "preprocessor_config.json"
    path.write_text(path.read_text().replace('"resample": 3', '"resample": 2'))
    for other, layer in ((tmp_path / "copy", "projected"), (models / "dinov2", "pooled")):
        with pytest.raises(ConfigError, match="Give the same encoder"):
            recipe(8, {**made_with, "layer": layer}).open(str(other))
    # three seconds of S3D are as many numbers as three of CLIP ViT-B/32
    other = {"model": "s3d", "weights": "0" * 64}
    with pytest.raises(ConfigError, match=r"s3d \(weights 000000000000\), not of"):
        recipe(24, other).open(str(models / "clip"))


@pytest.mark.parametrize("name", ["clip", "dinov2"])
def test_a_picture_and_the_frame_of_a_video_have_one_vector(models, tmp_path, name):
    """The vector of a second is the vector of its middle picture."""
    size = 150, 96
    drawn = pytest.importorskip("drawn_videos")
    from cefito.encoders.extraction import extract_videos
    from cefito.encoders.video import open_encoder

    shown = [picture(*size, seed=second) for second in range(3)]
    for second, one in enumerate(shown):
        one.save(tmp_path / f"{second}.png")
    how: dict[str, Any] = {"width": size[1], "height": size[0], "crf": 1}
    how["picture"] = lambda number: np.array(shown[number // 4])
    drawn.write_video(tmp_path / "video.mp4", drawn.steady(3, 4), **how)
    extract_videos(tmp_path / "video.mp4", tmp_path / "features", open_encoder(str(models / name)))
    features = np.load(tmp_path / "features" / "video.npy")
    made_with = json.loads((tmp_path / "features" / "extract.json").read_text())
    observer = recipe(features.shape[1], made_with).open()
    first = observer.of_pictures(tmp_path / "0.png", tmp_path / "1.png")
    last = observer.of_pictures(None, tmp_path / "2.png")
    assert len(features) == 3
    for second, vector in enumerate((first.initial[0], first.goal[0], last.goal[0])):
        distances = np.linalg.norm(features - vector, axis=1)
        assert distances[second] < 0.05 * np.delete(distances, second).min()


@pytest.mark.parametrize("value", [255.0, -1.0, np.nan])
def test_values_out_of_range(models, value):
    with pytest.raises(DataError, match=r"pictures: .*expected 0 to 1\."):
        PretrainedImages(models / "clip").encode(torch.full((1, 3, 8, 8), value))


def test_folders_without_a_preparation(copied):
    folder = copied("clip")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ConfigError, match=r"has no preprocessor_config.json or processor_"):
        PretrainedImages(folder)
    (folder / "preprocessor_config.json").write_text('{"size": {}}')
    with pytest.raises(ConfigError, match="how pictures are prepared"):
        PretrainedImages(folder).encode(torch.zeros(1, 3, 8, 8))
