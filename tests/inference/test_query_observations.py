"""Queries from files of features, cut as the data set of a run was."""

import numpy as np
import pytest

from cefito.data.readers.assemble import prepare
from cefito.data.source import read_common
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.answer import answer
from cefito.inference.query import (
    feature_layout,
    query_from_features,
    query_from_files,
    query_from_video,
)
from cefito.planners.queries import Queries
from tiny_runs import described, small_run

WIDTH = 6


@pytest.fixture
def make_run(make_source, tiny_videos, tmp_path):
    """A run on features of one row a second, whose last row some steps need; horizon 3."""
    tiny_videos[-1]["split"] = "val"
    folder = tmp_path / "features"
    folder.mkdir()
    generator = np.random.default_rng(3)
    for video in tiny_videos:
        # the last step ends at the last row, so that the row behind it is repeated
        rows = 1 + max((round(step[1]) for step in video["steps"]), default=1)
        array = generator.standard_normal((rows, WIDTH)) * 3
        np.save(folder / f"{video['video_id']}.npy", array.astype(np.float32))

    def make(**settings):
        source = read_common(make_source(videos=tiny_videos, features=None))
        dataset = prepare(source, folder, tmp_path / "data", **settings)
        return small_run(dataset, tmp_path / "run")

    return make


def features(tmp_path, video="e"):
    return tmp_path / "features" / f"{video}.npy"


@pytest.mark.parametrize(
    ("seconds", "precision", "beyond"),
    [(1, "float16", "drop"), (3, "float32", "rewrite"), (5, "float32", "drop")],
)
def test_planning_from_features_is_planning_from_the_data_set(
    make_run, tmp_path, seconds, precision, beyond
):
    run = make_run(seconds=seconds, precision=precision, beyond=beyond)
    assert feature_layout(run).border == ("last" if beyond == "rewrite" else "nearest")
    assert feature_layout(run).precision == precision
    dataset = run.dataset()
    compared = 0
    for video in dataset.videos:
        for first in range(len(video.steps) - 2):
            steps = video.steps[first : first + 3]
            theirs, _ = query_from_video(run, video.video_id, first + 1)
            path, times = features(tmp_path, video.video_id), (steps[0].start, steps[-1].end)
            ours = query_from_features(run, path, start=times[0], end=times[1])
            for name in ("initial", "goal"):
                left, right = getattr(ours, name), getattr(theirs, name)
                assert left.dtype == right.dtype == np.float32
                np.testing.assert_array_equal(left, right)
            assert answer(run, ours).to_dict() == answer(run, theirs).to_dict()
            compared += 1
    assert compared > 10


def test_features_with_the_rate_of_the_data_set(make_run, tmp_path):
    run, path = make_run(), features(tmp_path)
    observed = run.info.dataset.observed
    expected = query_from_features(run, path, start=2, end=12)
    np.save(tmp_path / "fast.npy", np.repeat(np.load(path), 25, axis=0))
    fast = described(run, **observed, feature_rate=25)
    found = query_from_features(fast, tmp_path / "fast.npy", start=2, end=12)
    np.testing.assert_array_equal(found.initial, expected.initial)
    np.testing.assert_array_equal(found.goal, expected.goal)


def test_an_end_behind_the_last_row_by_rounding(make_run, tmp_path):
    run, path = make_run(), features(tmp_path)
    last = query_from_features(run, path, start=2, end=12)
    for end in (12.6, 13, 13.5):
        query = query_from_features(run, path, start=2, end=end)
        np.testing.assert_array_equal(query.goal, last.goal)
    with pytest.raises(ConfigError, match=r"second 13\.51 is outside of"):
        query_from_features(run, path, start=2, end=13.51)


def test_runs_that_do_not_say_how(make_run, tmp_path, caplog):
    run, path = make_run(precision="float32"), features(tmp_path)
    expected = query_from_features(run, path, start=2, end=7.5)
    caplog.clear()  # of what training on so little data says
    silent = described(run)
    with pytest.raises(RunError, match=r"3 rows of 6 .*3 seconds") as asked:
        query_from_features(silent, path, start=2, end=7.5)
    assert asked.value.setting == "seconds"
    ours = query_from_features(silent, path, start=2, end=7.5, seconds=3, precision="float32")
    np.testing.assert_array_equal(ours.initial, expected.initial)
    assert not caplog.messages
    rounded = query_from_features(described(run, seconds=3, features=None), path, start=2, end=7.5)
    (message,) = caplog.messages
    assert "precision" in message
    assert "float16 is assumed" in message
    halves = expected.initial.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(rounded.initial, halves)
    with pytest.raises(RunError, match=r"5 rows of 6 .* 18"):
        query_from_features(silent, path, start=2, end=7.5, seconds=5)
    np.save(tmp_path / "odd.npy", np.zeros((20, 4), np.float32))
    with pytest.raises(RunError, match=r"Rows of 4, as in .*odd\.npy"):
        query_from_features(silent, tmp_path / "odd.npy", start=2, end=7.5)


@pytest.mark.parametrize(
    ("options", "setting", "message"),
    [
        ({"start": -1, "end": 5}, "start", r"second -1 is outside of .*e\.npy, which has 13"),
        ({"start": float("nan"), "end": 5}, "start", "second nan is outside of"),
        ({"start": 5, "end": 5}, "end", r"the end \(5\) must be after"),
        ({"start": 2, "end": 13.6}, "end", r"second 13\.6 is outside of .*e\.npy, which has 13"),
        ({"start": 2, "end": 5, "seconds": 1}, "seconds", r"has seconds 3 \(3 rows of 6"),
        ({"start": 2, "end": 5, "seconds": 2}, "seconds", "expected an odd number"),
        ({"start": 2, "end": 5, "precision": "float32"}, "precision", "has precision float16"),
    ],
)
def test_invalid_arguments(make_run, tmp_path, options, setting, message):
    run = make_run()
    with pytest.raises(ConfigError, match=message) as problem:
        query_from_features(run, features(tmp_path), **options)
    assert problem.value.setting == setting


def test_invalid_feature_files(make_run, tmp_path):
    run = make_run()
    for name, array, error, message in (
        ("narrow", np.zeros((20, 5)), RunError, "3 rows of 5 joined cannot make the 18"),
        ("joined", np.zeros((20, 18)), RunError, "3 rows of 18 joined cannot make the 18"),
        ("vector", np.zeros(18), DataError, r"vector\.npy: holds float64 \[18\]; expected"),
        ("nan", np.full((20, 6), np.nan), DataError, "NaN or infinity"),
        ("large", np.full((20, 6), 1e5), DataError, "above 65504"),
        ("pickled", np.array([[{}]], object), DataError, "pickled objects, which are never loaded"),
    ):
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        with pytest.raises(error, match=message):
            query_from_features(run, tmp_path / f"{name}.npy", start=2, end=7.5)
    with pytest.raises(DataError, match=r"gone\.npy: no such file"):
        query_from_features(run, tmp_path / "gone.npy", start=2, end=7.5)


def test_observations_of_another_width(make_run, tmp_path):
    run = make_run()
    for name, width in (("row", 6), ("other", 7), ("good", 18)):
        np.save(tmp_path / f"{name}.npy", np.zeros(width, np.float32))

    def asked(name):
        return query_from_files(tmp_path / f"{name}.npy", tmp_path / f"{name}.npy", run)

    with pytest.raises(RunError, match=r"row\.npy has 6 .*3 rows of 6 ") as row:
        asked("row")
    assert row.value.setting == "features"
    with pytest.raises(RunError, match=r"7 features; .* 3 rows"):
        asked("other")
    assert len(asked("good")) == 1
    query = Queries(initial=np.zeros((1, 6), np.float32), goal=np.zeros((1, 6), np.float32))
    with pytest.raises(RunError, match=r"6 features; .*\. Join the rows"):
        answer(run, query)
    with pytest.raises(RunError, match=r"6 features; .* on 18\."):
        answer(described(run), query)
