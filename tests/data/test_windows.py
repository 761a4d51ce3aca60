import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cefito.data import Annotations, PreparedDataset, Step, Video
from cefito.data.annotations import SPLITS
from cefito.data.readers.custom import prepare_custom
from cefito.data.windows import (
    HELD_OUT_SHARE,
    NoVideosError,
    count_windows,
    cut_windows,
    fitting_windows,
    split_videos,
    video_folds,
)
from cefito.errors import DataError
from made_windows import taxonomy_of


def as_dataset(annotations: Annotations) -> PreparedDataset:
    """A data set whose observations are the number of their row.

    At the end of a step it is the number + 0.5.
    """
    rows = np.arange(annotations.step_count, dtype=np.float32)[:, None]
    return PreparedDataset(Path("made"), "made", annotations, rows, rows + 0.5, None, {}, {})


def reference(dataset: PreparedDataset, horizon: int, members: list[int]) -> list[tuple]:
    """Windows by the slowest obvious way.

    Rows are counted one by one, every run of `horizon` steps is kept.
    """
    found, row = [], 0
    for index, video in enumerate(dataset.videos):
        for first in range(len(video.steps)):
            last = first + horizon - 1
            if index in members and last < len(video.steps):
                actions = [step.action for step in video.steps[first : last + 1]]
                found.append(
                    (float(row + first), row + last + 0.5, actions, video.task, index, first)
                )
        row += len(video.steps)
    return found


ACTIONS = st.lists(st.integers(0, 2), max_size=8)
videos_strategy = st.lists(
    st.tuples(st.sampled_from(SPLITS), st.integers(0, 2), ACTIONS, st.booleans()),
    min_size=1,
    max_size=25,
)


def build(raw) -> Annotations:
    videos = []
    for index, (split, task, actions, used) in enumerate(raw):
        steps = [Step(float(place), place + 1.0, action) for place, action in enumerate(actions)]
        videos.append(Video(f"v{index}", split, task, tuple(steps), used))
    return Annotations(taxonomy=taxonomy_of(3, 3), videos=tuple(videos))


@given(raw=videos_strategy, horizon=st.integers(1, 6), split=st.sampled_from(SPLITS))
def test_windows_are_those_of_the_slow_reference(raw, horizon, split):
    dataset = as_dataset(build(raw))
    members = split_videos(dataset.videos)[split]
    expected = reference(dataset, horizon, members)
    assert count_windows([dataset.videos[index] for index in members], horizon) == len(expected)
    if not expected:
        with pytest.raises(DataError, match=rf"'{split}' .*( horizon {horizon}|none was kept)"):
            cut_windows(dataset, horizon=horizon, split=split)
        return
    windows = cut_windows(dataset, horizon=horizon, split=split)
    ids = (windows.actions, windows.tasks, windows.video, windows.start)
    columns = (windows.initial[:, 0], windows.goal[:, 0], *ids)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert (windows.horizon, windows.split) == (horizon, split)
    assert windows.initial.dtype == windows.goal.dtype == np.float32
    assert all(array.dtype == np.int64 for array in ids)


@given(raw=videos_strategy)
def test_splits_are_disjoint_stratified_and_stable(raw):
    videos = build(raw).videos
    parts = split_videos(videos)
    assert split_videos(videos) == parts
    everything = [index for split in SPLITS for index in parts[split]]
    assert sorted(everything) == [index for index, video in enumerate(videos) if video.in_protocol]
    assert len(set(everything)) == len(everything)
    assert all(videos[index].split == "test" for index in parts["test"])
    if any(video.split == "val" and video.in_protocol for video in videos):
        assert all(videos[index].split == split for split in SPLITS for index in parts[split])
        return
    numbers = [
        [sum(videos[index].task == task for index in parts[split]) for split in ("val", "train")]
        for task in range(3)
    ]
    if all(held + kept < 5 for held, kept in numbers):  # one of the task with most
        assert len(parts["val"]) == (sum(map(sum, numbers)) > 1)
        most = max(held + kept for held, kept in numbers)
        assert all(held + kept == most for held, kept in numbers if held)
        return
    for held, kept in numbers:
        assert held == (round(HELD_OUT_SHARE * (held + kept)) or (1 if held + kept >= 5 else 0))


def test_the_only_video_held_out_is_not_a_short_one():
    raw = [("train", 0, [0], True), *[("train", 1, [0, 1, 2][:count], True) for count in (1, 3, 3)]]
    (held,) = split_videos(build(raw).videos)["val"]
    assert held in (2, 3)


@pytest.mark.parametrize("split", ["train", "val"])
def test_it_is_said_where_one_video_decides(split, make_source, tmp_path, caplog, monkeypatch):
    """Whether it is annotated as validation video or was held out."""
    common = {"task_id": 0, "steps": [[2.0 * step, 2.0 * step + 1, step] for step in range(3)]}
    videos = [
        {"video_id": f"video {number}", "split": "train" if number else split, **common}
        for number in range(4)
    ]
    dataset = prepare_custom(make_source("few", videos=videos), tmp_path / "data")
    with caplog.at_level(logging.WARNING, logger="cefito"):
        train, val = fitting_windows(dataset, horizon=2)
    assert (len(train), len(val)) == (6, 2)
    name = dataset.videos[val.video[0]].video_id
    (message,) = caplog.messages
    assert f"are chosen on the 2 windows of one video, '{name}'" in message
    monkeypatch.setattr("cefito.data.windows.FEW_VIDEOS", 3)  # of training, as there are
    fitting_windows(dataset, horizon=2)
    assert caplog.messages == [message]


def test_a_single_video_is_not_enough(make_source, tmp_path):
    video = {"video_id": "a", "split": "train", "task_id": 0, "steps": [[0, 1, 0], [2, 3, 1]]}
    dataset = prepare_custom(make_source("one", videos=[video]), tmp_path / "data")
    with pytest.raises(DataError, match=r"'val' gives no windows"):
        fitting_windows(dataset, horizon=2)


def test_hold_out_does_not_depend_on_test_videos_or_steps():
    raw = [("train", task, [0, 1, 2], True) for task in (0, 1, 2) for _ in range(20)]
    first = split_videos(build(raw).videos)
    longer = [(split, task, [*actions, 1], use) for split, task, actions, use in raw]
    second = split_videos(build([*longer, ("test", 0, [1], True)]).videos)
    assert first["val"] == second["val"]
    assert [raw[index][1] for index in first["val"]] == [0, 0, 1, 1, 2, 2]


def test_subset_and_sample(tiny_dataset):
    windows = cut_windows(tiny_dataset, horizon=2, split="test")
    assert windows.dataset == "tiny"
    np.testing.assert_array_equal(windows.action_text, tiny_dataset.action_text)
    part = windows.subset([3, 0])
    np.testing.assert_array_equal(part.goal, windows.goal[[3, 0]])
    np.testing.assert_array_equal(part.actions, windows.actions[[3, 0]])
    assert windows.sample(None, seed=0) is windows
    assert windows.sample(len(windows), seed=0) is windows
    one, other = windows.sample(4, seed=1), windows.sample(4, seed=1)
    np.testing.assert_array_equal(one.initial, other.initial)
    places = list(zip(one.video.tolist(), one.start.tolist(), strict=True))
    assert len(set(places)) == 4
    assert places == sorted(places)
    assert any(
        windows.sample(4, seed=seed).start.tolist() != one.start.tolist() for seed in range(2, 8)
    )


def test_times_that_are_not_in_order_are_unknown(make_source, tiny_videos, tmp_path):
    (steps,) = (video["steps"] for video in tiny_videos if video["video_id"] == "e")
    steps[1][:2], steps[3][:2] = [50.0, 51.0], [0.0, 0.0]
    dataset = prepare_custom(make_source(videos=tiny_videos), tmp_path / "out")
    windows = cut_windows(dataset, horizon=2, shortest=1, split="test")
    (video,) = {index for index, one in enumerate(dataset.videos) if one.video_id == "e"}
    elapsed = windows.elapsed
    assert elapsed is not None
    found = {
        (start, length): seconds
        for start, length, seconds, place in zip(
            windows.start, windows.lengths, elapsed, windows.video, strict=True
        )
        if place == video
    }
    times = [step[:2] for step in steps]
    for (start, length), seconds in found.items():
        expected = times[start + length - 1][1] - times[start][0]
        assert seconds == pytest.approx(expected if expected > 0 else np.nan, nan_ok=True)
    assert np.isnan([found[1, 2], found[3, 1]]).all()


def test_what_cannot_be_cut(tiny_dataset):
    with pytest.raises(DataError, match=r"at most 6 steps"):
        cut_windows(tiny_dataset, horizon=7, split="test")
    with pytest.raises(DataError, match=r"horizon 0, .* at least 1"):
        cut_windows(tiny_dataset, horizon=0, split="test")
    with pytest.raises(DataError, match=r"split 'dev': .* train, val, test"):
        cut_windows(tiny_dataset, horizon=3, split="dev")
    no_test = as_dataset(build([("train", 0, [0, 1, 2], True)]))
    with pytest.raises(NoVideosError, match=r"of 1 video none was kept .*'test'"):
        cut_windows(no_test, horizon=3, split="test")


COUNTS = {
    "crosstask": {3: (10814, 4531), 4: (9021, 3786), 5: (7350, 3104), 6: (5868, 2499)},
    "coin": {3: (13698, 5571), 4: (8537, 3391), 5: (5252, 2029), 6: (3395, 1309)},
    "niv": {3: (697, 270), 4: (598, 228), 5: (499, 187), 6: (403, 148)},
}


@pytest.mark.parametrize("name", COUNTS)
def test_window_counts_of_the_protocol(real_annotations, name):
    annotations = real_annotations(name)
    dataset = as_dataset(annotations)
    members = {
        split: [video for video in annotations.videos if video.split == split] for split in SPLITS
    }
    assert not members["val"]
    for horizon, (train, test) in COUNTS[name].items():
        assert count_windows(members["train"], horizon) == train
        assert count_windows(members["test"], horizon) == test
        windows = {split: cut_windows(dataset, horizon=horizon, split=split) for split in SPLITS}
        assert len(windows["test"]) == test
        assert len(windows["train"]) + len(windows["val"]) == train
        assert not set(windows["train"].video) & set(windows["val"].video)
        # the row of the initial observation is the step that the window starts with
        video, first = int(windows["val"].video[-1]), int(windows["val"].start[-1])
        row = sum(len(entry.steps) for entry in annotations.videos[:video]) + first
        assert windows["val"].initial[-1, 0] == row
        assert windows["val"].goal[-1, 0] == row + horizon - 1 + 0.5


def places(windows):
    return list(zip(windows.video.tolist(), windows.start.tolist(), strict=True))


@given(raw=videos_strategy, own=st.booleans(), horizon=st.integers(1, 3))
def test_nothing_is_fitted_or_chosen_on_test_windows_unless_asked_for(raw, own, horizon):
    """Against every window of the data set, by the split that its video has in the annotations."""
    raw += [("train", 0, [0, 1, 2, 0], True)] * 20 + [
        ("val", 1, [2, 1, 0], True),
        ("test", 2, [0, 1, 2], True),
    ]
    raw = [
        ("train" if split == "val" and not own else split, task, actions, used or split == "val")
        for split, task, actions, used in raw
    ]
    dataset = as_dataset(build(raw))
    everything: dict[str, list[tuple[int, int]]] = {split: [] for split in SPLITS}
    for index, (split, _, actions, used) in enumerate(raw):
        everything[split] += [(index, first) for first in range(len(actions) - horizon + 1) if used]
    parts = split_videos(dataset.videos)
    for split in SPLITS:
        assume(count_windows([dataset.videos[index] for index in parts[split]], horizon))
    train, val = fitting_windows(dataset, horizon=horizon)
    assert sorted(places(train) + places(val)) == sorted(everything["train"] + everything["val"])
    assert not set(train.video) & set(val.video)
    assert not set(places(train) + places(val)) & set(everything["test"])
    assert (train.split, val.split) == ("train", "val")
    train, test = fitting_windows(dataset, horizon=horizon, selection="published")
    # in the order in which they are cut where no video is held out
    assert places(train) == everything["train"]
    assert places(test) == everything["test"]
    assert test.split == "test"


@given(
    st.lists(st.integers(0, 9), max_size=40).map(lambda videos: np.array(videos, np.int64)),
    st.integers(1, 6),
)
def test_folds_by_video(videos, count):
    folds = video_folds(videos, count)
    assert folds.dtype == np.int64
    assert folds.shape == videos.shape
    of_video = dict(zip(videos.tolist(), folds.tolist(), strict=True))
    assert folds.tolist() == [of_video[video] for video in videos.tolist()]
    sizes = [list(of_video.values()).count(fold) for fold in range(count)]
    assert sum(sizes) == len(of_video)
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(video_folds(videos, count), folds)
