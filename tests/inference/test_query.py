"""Queries from videos of a data set, files and pictures."""

import numpy as np
import pytest

from cefito.data.readers.custom import prepare_custom
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.observer import ObservationRecipe
from cefito.inference.query import query_from_files, query_from_video
from tiny_runs import described, small_run


@pytest.fixture
def run(make_source, tiny_videos, tmp_path):
    """A run of horizon 3 on the tiny data set, of a method that trains nothing."""
    tiny_videos[-1]["split"] = "val"
    dataset = prepare_custom(make_source(videos=tiny_videos), tmp_path / "data")
    return small_run(dataset, tmp_path / "run")


def test_the_query_of_a_video(run):
    dataset = run.dataset()
    query, truth = query_from_video(run, "e", 3)  # behind the 13 steps of videos a to d
    assert truth.tolist() == [4, 5, 2]
    np.testing.assert_array_equal(query.initial, dataset.start[15][None])
    np.testing.assert_array_equal(query.goal, dataset.end[17][None])
    assert query.initial.dtype == query.goal.dtype == np.float32
    assert query.tasks is None
    assert query_from_video(run, "a", 1)[1].tolist() == [0, 1, 2]
    assert query_from_video(run, "e", 4)[1].tolist() == [5, 2, 3]


def test_queries_that_no_video_gives(run):
    for video, start, message in (
        ("z", 1, "no video 'z' in .*data"),
        ("e", 5, r"has 6 steps; 3 from step 5 .* Start from step 1 to 4\."),
        ("e", 0, r"counted from 1\) do not fit\. Start from step 1 to 4\."),
        ("a", 2, r"Start from step 1 to 1\."),
        ("d", 1, "It is too short"),
        ("g", 1, "has 0 steps.*too short"),
    ):
        with pytest.raises(ConfigError, match=message):
            query_from_video(run, video, start)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.dtype(">f4")])
def test_the_query_of_two_files(kind, run, tmp_path):
    initial, goal = np.arange(4.0), np.arange(4.0) - 2
    np.save(tmp_path / "a.npy", initial.astype(kind)[None])
    np.save(tmp_path / "b.npy", goal.astype(kind))
    query = query_from_files(tmp_path / "a.npy", tmp_path / "b.npy", run)
    assert query.initial.tolist() == [initial.tolist()]
    assert query.goal.tolist() == [goal.tolist()]
    assert query.initial.dtype == query.goal.dtype == np.float32
    assert query.tasks is None


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.0, np.nan, 2, 3]), "NaN or infinity"),
        (np.array([1.0, 1e300, 2, 3]), "NaN or infinity"),
        (np.arange(4), "floating-point"),
        (np.array(1.0), "shape"),
        (np.zeros((2, 4)), r"has shape \[2, 4\]; expected one observation"),
        (np.array([{}, 1], object), "pickled objects, which are never loaded"),
    ],
)
def test_files_that_hold_no_observation(array, message, run, tmp_path):
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    np.save(tmp_path / "good.npy", np.zeros(4))
    for first, second in (("bad", "good"), ("good", "bad")):
        with pytest.raises(DataError, match=rf"bad\.npy.*{message}"):
            query_from_files(tmp_path / f"{first}.npy", tmp_path / f"{second}.npy", run)


def test_files_of_different_sizes_and_missing_ones(run, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4))
    np.save(tmp_path / "b.npy", np.zeros(5))
    with pytest.raises(RunError, match=r"b\.npy has 5 features; .* on 4"):
        query_from_files(tmp_path / "a.npy", tmp_path / "b.npy", run)
    with pytest.raises(DataError, match=r"c\.npy: no such file"):
        query_from_files(tmp_path / "a.npy", tmp_path / "c.npy", run)
    (tmp_path / "c.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-3])
    with pytest.raises(DataError, match=r"c\.npy: cannot be read"):
        query_from_files(tmp_path / "c.npy", tmp_path / "a.npy", run)


def test_the_encoder_must_be_known(run):
    for made_with, encoder, message, setting in (
        ({}, None, "does not say what its features were made with", "encoder"),
        ({"model": "mine"}, None, "its features are of the model 'mine'", "encoder"),
        ({"model": "s3d"}, None, "s3d needs the file of its weights", "weights"),
        ({"model": "s3d"}, "gauss", "unknown encoder 'gauss'", ""),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            ObservationRecipe.of(described(run, features=made_with)).open(encoder)
        assert caught.value.setting == setting


@pytest.mark.parametrize(("given", "taken"), [(None, __file__), ("moved.pth", "moved.pth")])
def test_weights_are_where_the_run_says_or_where_they_were_moved(run, given, taken, monkeypatch):
    opening = lambda _, *, weights, **__: {}[str(weights)]  # noqa: E731
    monkeypatch.setattr("cefito.encoders.video.open_encoder", opening)
    recipe = ObservationRecipe.of(described(run, features={"model": "s3d", "file": __file__}))
    with pytest.raises(KeyError, match=taken):
        recipe.open(weights=given)


class Constant:
    """An encoder of pictures that gives every picture a vector of its mean, four numbers long."""

    def encode(self, images):
        return np.repeat(images.mean(dim=(1, 2, 3)).numpy()[:, None], 4, axis=1)

    def describe(self):
        return {"model": "constant", "layer": "only", "weights": "none"}


@pytest.fixture
def pictures(monkeypatch, tmp_path):
    """Two pictures, black and white, and an encoder by the name "constant"."""
    image = pytest.importorskip("PIL.Image")
    from cefito.encoders import video

    monkeypatch.setattr(video, "settings_of", lambda _: ())
    monkeypatch.setattr(video, "open_encoder", lambda *_, **__: video.Pictures(Constant()))
    for name, grey in (("a", 0), ("b", 255)):
        image.new("RGB", (6, 4), (grey,) * 3).save(tmp_path / f"{name}.png")
    return tmp_path / "a.png", tmp_path / "b.png"


def test_the_query_of_two_pictures(run, pictures, caplog):
    made_with = {"model": "constant/constant", "layer": "only", "weights": "none"}
    made = described(run, features=made_with)
    query = ObservationRecipe.of(made).open().of_pictures(*pictures)
    assert query.initial.tolist() == [[0.0] * 4]
    assert query.goal.tolist() == [[1.0] * 4]
    assert query.tasks is None
    assert not caplog.messages
    again = ObservationRecipe.of(run).open("constant").of_pictures(*pictures)
    np.testing.assert_array_equal(again.goal, query.goal)
    assert caplog.messages == [
        "the run does not say what its features were made with; answers make sense only if it was "
        "constant"
    ]
    other = described(run, features=made_with | {"weights": "others"})
    with pytest.raises(ConfigError, match="trained on features of") as wrong:
        ObservationRecipe.of(other).open().of_pictures(*pictures)
    assert wrong.value.setting == "encoder"
