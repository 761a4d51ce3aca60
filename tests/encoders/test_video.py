"""Features of a video: rows, borders, batches, and encoders of pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cefito.encoders import frames
from cefito.encoders import video as module
from cefito.encoders.video import Pictures, extract_features, open_encoder, record
from cefito.errors import ConfigError, DataError
from cefito.inference.observer import ObservationRecipe, Observer

av = pytest.importorskip("av")


@pytest.fixture(scope="module")
def clip(write_video, tmp_path_factory):
    """Twelve seconds."""
    return write_video(tmp_path_factory.mktemp("video") / "clip.mp4", 12)


@pytest.fixture(scope="module")
def features(clip, stub):
    return extract_features(clip, stub)


def test_one_vector_a_second(features):
    assert features.shape == (12, 3)
    assert features.dtype == np.float32
    assert (np.diff(features[:, 0]) > 0.02).all()  # brighter every second
    assert np.abs(features[:, 2]).max() < 0.05


@pytest.mark.parametrize("batch", [1, 5, 100])
def test_batches_change_nothing(clip, features, batch, stub, log):
    found = extract_features(clip, stub, batch=batch, progress=log)
    np.testing.assert_allclose(found, features, atol=1e-6)
    (work,) = log.works
    assert (work["description"], work["total"], work["done"]) == ("clip.mp4", 12, 12)


@pytest.mark.parametrize(
    ("border", "rows"),
    [
        ("nearest", {5.6: [5, 6, 7], 4.5: [3, 4, 5], 5.5: [5, 6, 7]}),  # halves to the even second
        ("nearest", {10.6: [10, 11, 11], 0.0: [0, 0, 1], 12.0: [11, 11, 11]}),
        ("last", {1.0: [0, 1, 2], 0.0: [0, 1, 1], 11.0: [10, 11, 11]}),
    ],
)
def test_three_vectors_around_each_time(clip, features, border, rows, stub, log):
    found = extract_features(clip, stub, at=list(rows), border=border, progress=log)
    np.testing.assert_array_equal(found, features[np.array(list(rows.values()))])
    assert log.works[0]["done"] == log.works[0]["total"]


@pytest.mark.parametrize("time", [-0.1, 13.0, float("nan")])
def test_times_outside_the_video(clip, time, stub):
    with pytest.raises(ConfigError, match=f"12.0 seconds; second {time:g} is outside"):
        extract_features(clip, stub, at=[3, time])


def recipe(seconds=3, **made_with):
    return ObservationRecipe(place="RUN", made_with=made_with, seconds=seconds, size=3 * seconds)


@pytest.mark.parametrize("start", [5, float("nan")])
def test_observations_in_the_wrong_order(clip, start, stub):
    with pytest.raises(ConfigError, match=r"the end \(second 5\)"):
        Observer(recipe(), "stub", stub).of_video(clip, start, 5)


@pytest.mark.parametrize("seconds", [1, 3, 5])
def test_numbers_of_seconds_in_an_observation(clip, features, stub, seconds):
    half = seconds // 2
    query = Observer(recipe(seconds), "stub", stub).of_video(clip, 4.2, 8)
    with pytest.raises(ConfigError, match=f"{seconds + 1} seconds .* odd"):
        Observer(recipe(seconds + 1), "stub", stub).of_video(clip, 4.2, 8)
    for (observation,), centre in zip((query.initial, query.goal), (4, 8), strict=True):
        expected = features[centre - half : centre + half + 1].reshape(-1)
        np.testing.assert_array_equal(observation, expected)


def test_observations_for_a_planner_that_learned_from_others(stub, monkeypatch):
    monkeypatch.setattr(module, "settings_of", lambda _: ())
    monkeypatch.setattr(module, "open_encoder", lambda *_, **__: stub)
    made_with = record(stub)
    assert made_with == {"model": "stub", "layers": [1, 2], "frames": 4, "rate": 4.0, "size": 32}
    recipe(**{**made_with, "model": "elsewhere/stub"}).open()
    for name, value in (("frames", 8), ("weights", "0" * 64)):
        message = f"of stub .{name} {str(value)[:12]}., not of stub .{name} "
        with pytest.raises(ConfigError, match=message):
            recipe(**{**made_with, name: value}).open("stub")


def test_only_a_batch_is_held(clip, make_stub, monkeypatch):
    """Clips are made when the encoder wants them, not before."""
    made, seen = [], []
    original = frames.clips

    def counting(*arguments):
        for one in original(*arguments):
            made.append(1)
            yield one

    monkeypatch.setattr(module, "clips", counting)
    stub = make_stub(before=lambda: seen.append(len(made)))
    extract_features(clip, stub, batch=5)
    assert (seen, stub.calls) == ([5, 10, 12], [5, 5, 2])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.full((4, 3), np.nan, np.float32), "rows hold NaN or infinity"),
        (np.zeros((3, 3), np.float32), r"has shape \[9, 3\]; expected \[12, any\]"),
    ],
)
def test_encoders_must_give_finite_rows(clip, make_stub, result, message):
    with pytest.raises(DataError, match=rf"clip\.mp4: its features: .*{message}"):
        extract_features(clip, make_stub(encode=lambda _: result))


class Brightness:
    """An encoder of pictures: mean of each colour, height and width."""

    def __init__(self):
        self.calls = []

    def describe(self):
        return {"model": "brightness"}

    def encode(self, images):
        self.calls.append(tuple(images.shape))
        sizes = torch.tensor(images.shape[-2:]).expand(len(images), 2)
        return torch.cat([images.mean(dim=(2, 3)), sizes], dim=1).numpy()


def test_pictures_are_clips_of_one_frame(clip, make_stub):
    """An encoder of pictures sees the whole frame in the middle of each second."""
    images = Brightness()
    encoder = Pictures(images)
    found = extract_features(clip, encoder, batch=5)
    assert images.calls == [(5, 3, 32, 48), (5, 3, 32, 48), (2, 3, 32, 48)]
    assert encoder.describe() == {"model": "brightness"}
    assert (found[:, 3:] == (32, 48)).all()
    with av.open(str(clip)) as container:
        middle = [
            frame.to_ndarray(format="rgb24").mean((0, 1)) / 255
            for number, frame in enumerate(container.decode(video=0))
            if number % 10 == 5
        ]
    np.testing.assert_allclose(found[:, :3], middle, atol=0.005)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("s3d", {}, "s3d needs the file of its weights"),
        ("clip", {"weights": "s3d.pth"}, "weights: the encoder clip has no such setting"),
    ],
)
def test_unusable_encoders(name, options, message):
    with pytest.raises(ConfigError, match=message):
        open_encoder(name, **options)
