"""Rows of whole videos that are kept with a prepared data set."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.data.annotations import Step
from cefito.data.prepared import open_dataset
from cefito.data.readers.custom import prepare
from cefito.data.timeline import TIMELINE_FILE, Timeline, row_labels
from cefito.errors import DataError
from cefito.files import write_tensors
from odd_names import ODD

LENGTHS = {"a": 9, "b": 7, "c": 12}
STEPS = [[[1, 3, 0], [4, 8, 1]], [[0, 2, 1], [3, 6, 0]], [[2, 5, 0], [6, 11, 1]]]


@pytest.fixture
def make(make_source):
    """Write a folder with a timeline, some arrays of which are replaced or left out (None)."""

    def made(name="source", /, **changed):
        tasks = [{"id": 0, "name": "tea", "actions": [0, 1]}]
        actions = [{"id": 0, "name": "boil"}, {"id": 1, "name": "pour"}]
        taxonomy = {"dataset": "films", "tasks": tasks, "actions": actions}
        videos = [
            {"video_id": video, "split": "train", "task_id": 0, "steps": steps}
            for video, steps in zip(LENGTHS, STEPS, strict=True)
        ]
        folder = make_source(name, taxonomy=taxonomy, videos=videos, features=None)
        rng = np.random.default_rng(0)
        arrays: dict[str, Any] = {
            video: rng.standard_normal((size, 4)) for video, size in LENGTHS.items()
        }
        arrays |= changed
        np.savez(folder / "timeline.npz", **{k: v for k, v in arrays.items() if v is not None})
        return folder

    return made


def with_features(folder):
    rng = np.random.default_rng(1)
    steps = sum(map(len, STEPS))
    start, end = rng.standard_normal((2, steps, 5)).astype(np.float32)
    np.savez(folder / "features.npz", start=start, end=end)
    return folder


def test_rows_keep_their_rate(make, tmp_path):
    """Also where the observations are taken from them; the last step ends with its rows."""
    source = make(rate=5.0, a=np.ones((42, 4)), b=np.ones((32, 4)), c=np.ones((57, 4)))
    text = (source / "videos.jsonl").read_text()
    (source / "videos.jsonl").write_text(text.replace("[6, 11, 1]", "[6, 11.8, 1]"))
    dataset = open_dataset(prepare(source, tmp_path / "out").folder)
    assert dataset.timeline.rate == 5
    assert [len(rows) for rows in dataset.timeline.videos] == [42, 32, 57]
    assert [len(video.steps) for video in dataset.videos] == [2, 2, 2]


def test_written_and_read(make, tmp_path):
    source = with_features(make(rate=np.float64(1 / 3)))
    dataset = open_dataset(prepare(source, tmp_path / "out").folder)
    found = dataset.timeline
    assert found.rate == 1 / 3
    assert found.width == 4
    with np.load(source / "timeline.npz") as archive:
        for video, rows in zip(LENGTHS, found.videos, strict=True):
            np.testing.assert_array_equal(rows, archive[video].astype(np.float16))
    assert dataset.observation_dim == 5


def test_rows_can_be_left_out_and_do_not_change_the_fingerprint(make, tmp_path):
    source = with_features(make())
    kept = prepare(source, tmp_path / "kept")
    bare = prepare(source, tmp_path / "bare", timeline=False)
    assert kept.timeline is not None
    assert kept.timeline.rate == 1
    assert bare.timeline is None
    (source / "timeline.npz").unlink()  # without it, observations alone
    assert prepare(source, tmp_path / "observations").timeline is None
    assert not (bare.folder / TIMELINE_FILE).exists()
    assert kept.fingerprint == bare.fingerprint
    without = prepare(make("other"), tmp_path / "without", timeline=False)
    assert without.timeline is None
    assert without.fingerprint == prepare(tmp_path / "other", tmp_path / "with").fingerprint


def test_a_changed_file_is_refused(make, tmp_path, reseal):
    dataset = prepare(with_features(make()), tmp_path / "out")
    path, rows = dataset.folder / TIMELINE_FILE, dataset.timeline.videos
    content = bytearray(path.read_bytes())
    for write, problem in (
        (Timeline(rows[:2]).write, r"has rows of 2 videos; videos\.jsonl has 3\. Prepare the data"),
        (lambda path: write_tensors(path, {"rows": rows[0]}), "not the rows of a data set"),
    ):
        write(path)
        reseal(dataset.folder)
        with pytest.raises(DataError, match=problem):
            _ = open_dataset(dataset.folder).timeline
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=TIMELINE_FILE):
        _ = open_dataset(dataset.folder).timeline
    path.unlink()
    with pytest.raises(DataError, match=TIMELINE_FILE):
        _ = open_dataset(dataset.folder).timeline


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"b": None}, "has no rows of video 'b'. Save them under its id."),
        ({"rate": 0.0}, "has the rate 0.0; expected rows a second."),
        ({"b": np.full((7, 4), np.nan)}, "video 'b'"),
        ({"b": np.full((7, 4), 1e6)}, "video 'b'"),  # infinite in half precision
        ({"b": np.zeros((7, 3))}, "video 'b'"),
        ({"a": np.zeros(9)}, "video 'a': has shape [9]"),
        ({"a": np.array(["x"])}, "timeline.npz: not such numbers"),
        ({"rate": np.array([])}, "timeline.npz holds numbers [rows, D] of each video"),
        ({name: np.zeros((9, 0)) for name in LENGTHS}, "video 'a': has no rows."),
        ({"b": np.zeros((0, 4))}, "video 'b': has no rows. Leave the video out."),
    ],
)
def test_rows_that_are_refused(make, tmp_path, changed, problem):
    source = make(**changed)
    for folder in (source, with_features(source)):
        with pytest.raises(DataError, match=re.escape(problem)):
            prepare(folder, tmp_path / "out")
    (source / "timeline.npz").write_text("video,row\n")
    with pytest.raises(DataError, match=r"timeline\.npz: "):
        prepare(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_steps_are_observed_in_the_rows(make, tmp_path):
    """Without features.npz, an observation is the three rows around a border of a step."""
    source = make()
    dataset = prepare(source, tmp_path / "out")
    rows = dataset.timeline.videos[0]
    assert dataset.observation_dim == 12
    np.testing.assert_array_equal(dataset.start[1], rows[3:6].reshape(-1))
    np.testing.assert_array_equal(dataset.end[0], rows[2:5].reshape(-1))
    wide = prepare(source, tmp_path / "one", seconds=1)
    np.testing.assert_array_equal(wide.start[1], rows[4])


def test_names_of_videos_are_no_paths_and_none_is_dropped(make_source, tmp_path):
    videos = [
        {"video_id": name, "split": "train", "task_id": 0, "steps": [[1, 3, 0], [4, 6, 1]]}
        for name in ODD
    ]
    source = make_source(videos=videos, features=None)
    arrays: dict[str, Any] = {
        name: np.full((8, 2), number, np.float16) for number, name in enumerate(ODD)
    }
    np.savez(source / "timeline.npz", **arrays)
    dataset = prepare(source, tmp_path / "out")
    assert [video.video_id for video in dataset.videos] == [*ODD]
    assert [rows[0, 0] for rows in dataset.timeline.videos] == [*range(len(ODD))]
    assert dataset.start[::2, 0].tolist() == [*range(len(ODD))]
    assert not Path("/abs.npy").exists()


def test_labels_of_rows():
    steps = [Step(1.4, 3.6, 0), Step(3.0, 5.0, 1), Step(6.4, 6.4, 0)]
    assert row_labels(steps, 8, 1.0, 9).tolist() == [9, 0, 0, 1, 1, 9, 0, 9]
    assert row_labels(steps[:1], 8, 2.0, 9).tolist() == [9, 9, 9, 0, 0, 0, 0, 9]
    # a step beyond the rows
    assert row_labels([Step(2.0, 9.0, 1)], 4, 1.0, 9).tolist() == [9, 9, 1, 1]
