from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.folds import drawn_groups, fold_view, folds_of, known_videos, split_folds
from cefito.data.source import draw_split
from cefito.data.windows import cut_windows, fitting_windows, split_videos
from cefito.errors import ConfigError, DataError
from cefito.evaluation import ScoredWindows, evaluate_planner
from cefito.evaluation.score import successes
from cefito.planners.methods import find_method, load_config
from cefito.training.trainer import TrainingContext


@pytest.mark.parametrize("count", [2, 5, 36])
def test_folds_are_disjoint_complete_and_even_for_each_task(world, count):
    videos = known_videos(world)
    folds = split_folds(world, videos, count)
    assert sorted(video for fold in folds for video in fold) == videos
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    for task in world.taxonomy.tasks:
        sizes = [sum(world.videos[video].task == task.id for video in fold) for fold in folds]
        assert max(sizes) - min(sizes) <= 1
    assert split_folds(world, videos, count) == folds
    if count == 5:
        assert split_folds(world, videos, count, seed=1) != folds


def test_numbers_of_folds_that_are_not_possible(world):
    for count in (-1, 0, 1, 37):
        with pytest.raises(ConfigError, match=rf"folds {count}: .* 2 to .* \(36\)"):
            split_folds(world, known_videos(world), count)


def test_test_videos_are_known_on_request_alone(world):
    splits = Counter(world.videos[video].split for video in known_videos(world))
    assert splits == {"train": 24, "val": 12}
    assert known_videos(world, test=True) == list(range(48))
    first = replace(world.videos[0], in_protocol=False)
    annotations = replace(world.annotations, videos=(first, *world.videos[1:]))
    assert 0 not in known_videos(replace(world, annotations=annotations))


def test_a_view_has_no_other_videos(world):
    held, train = [30, 31], list(range(20))
    view = fold_view(world, train=train, held=held)
    splits = split_videos(view.videos)
    assert splits["test"] == held
    assert sorted(splits["train"] + splits["val"]) == train
    assert splits["val"]  # held out of the training videos
    assert set(cut_windows(view, horizon=3, split="test").video) <= set(held)
    given = split_videos(fold_view(world, train=train, val=[20, 21], held=held).videos)
    assert given == {"train": train, "val": [20, 21], "test": held}


def test_views_have_fingerprints_of_their_own(world):
    views = [
        fold_view(world, train=[0, 1, 2], held=[3]),
        fold_view(world, train=[0, 1], held=[3]),
        fold_view(world, train=[0, 1], held=[2, 3]),
        fold_view(world, train=[0], val=[1], held=[2, 3]),
    ]
    assert len({world.fingerprint, *(view.fingerprint for view in views)}) == 5
    again = fold_view(world, train=[0, 1, 2], held=[3])
    assert again.fingerprint == views[0].fingerprint
    np.testing.assert_array_equal(again.start, world.start)


def test_a_view_without_videos_of_a_split_gives_no_windows(world):
    with pytest.raises(DataError, match="'train' gives no windows"):
        cut_windows(fold_view(world, train=(), held=[3]), horizon=3, split="train")


def grouped(dataset, groups):
    """The data set with the groups of its first videos."""
    videos = [
        replace(video, group=group) for video, group in zip(dataset.videos, groups, strict=False)
    ]
    videos += dataset.videos[len(videos) :]
    return replace(dataset, annotations=replace(dataset.annotations, videos=tuple(videos)))


def test_folds_keep_groups_together_and_are_as_even_as_these(world):
    sizes = {"a": 9, "b": 5, "c": 4, "d": 3}  # and 27 videos of their own
    data = grouped(world, [name for name, size in sizes.items() for _ in range(size)])
    folds = folds_of(data.videos, 4, seed=2)
    names = np.array([video.group for video in data.videos])
    for name in sizes:
        assert len(set(folds[names == name])) == 1
    assert np.bincount(folds).tolist() == [12, 12, 12, 12]
    assert len(set(folds[names == ""])) == 4
    np.testing.assert_array_equal(folds_of(data.videos, 4, seed=2), folds)
    np.testing.assert_array_equal(folds_of(data.videos, 4, seed=2, by_task=True), folds)
    assert sorted(np.bincount(folds_of(data.videos[:21], 9))) == [3, 4, 5, 9]


def test_folds_without_groups_are_those_of_a_permutation(world):
    expected = np.random.default_rng(3).permutation(48) % 5
    np.testing.assert_array_equal(folds_of(world.videos, 5, 3), expected)
    of_one = grouped(world, ["anna"] * 48)  # whose videos cannot be held apart by group
    np.testing.assert_array_equal(folds_of(of_one.videos, 5, 3), expected)


def test_one_group_is_left_out_at_a_time(world):
    data = grouped(world, [f"person {number % 3}" for number in range(48)])
    videos = known_videos(data)
    folds = split_folds(data, videos, by="group")
    held = [{data.videos[video].group for video in fold} for fold in folds]
    assert sorted(map(sorted, held)) == [["person 0"], ["person 1"], ["person 2"]]
    assert len(split_folds(data, videos)) == 3
    assert len(split_folds(data, videos, 2)) == 2
    assert [len(fold) for fold in split_folds(data, videos, by="video")] == [8, 7, 7, 7, 7]
    with pytest.raises(ConfigError, match=r"folds 4: .* number of groups \(3\)"):
        split_folds(data, videos, 4)
    with pytest.raises(ConfigError, match="not of several groups"):
        split_folds(world, videos, by="group")


def test_splits_that_are_drawn_keep_groups_together(world):
    data = grouped(world, [f"day {number // 4}" for number in range(48)])
    videos = [replace(video, split="train") for video in data.videos]
    drawn = draw_split(videos)
    by_group = {(video.group, video.split) for video in drawn}
    assert len(by_group) == 12
    assert Counter(split for _, split in by_group) == {"train": 8, "test": 4}
    train = [video for video in drawn if video.split == "train"]
    assert {video.task for video in train} == {video.task for video in drawn}
    parts = split_videos(train)
    held = {train[place].group for place in parts["val"]}
    assert len(held) == 1
    assert not held & {train[place].group for place in parts["train"]}
    of_one = draw_split([replace(video, group="anna") for video in videos])
    assert [video.split for video in of_one] == [
        video.split for video in draw_split([replace(video, group="") for video in videos])
    ]


def test_a_task_keeps_training_videos_if_the_groups_allow_it(world):
    """Only one group does the first task, so it is never drawn."""
    for seed in range(5):
        videos = [
            replace(video, task=int(number >= 6), group="abcdefgh"[number // 6])
            for number, video in enumerate(world.videos)
        ]
        drawn = drawn_groups(videos, 0.3, seed)
        assert len(drawn) == 12
        assert not drawn & set(range(6))


def test_intervals_resample_groups(world):
    data = grouped(world, [f"person {number % 3}" for number in range(48)])
    windows = cut_windows(data, horizon=3, split="test")
    groups = [data.videos[video].group for video in windows.video]
    assert [f"person {unit}" for unit in windows.units] == groups
    plans = load_config("small", method="frequent")
    fitted = find_method("frequent").planner.fit(
        *fitting_windows(data, horizon=3),
        settings=plans.settings,
        seed=0,
        context=TrainingContext(),
    )
    scores, found = evaluate_planner(fitted.planner, windows)
    intervals = ScoredWindows(found, windows).intervals()
    assert (intervals.groups, intervals.videos, intervals.resampled) == (3, 12, "3 groups")
    means = [
        100 * successes(found, windows)[np.array(groups) == name].mean()
        for name in sorted({*groups})
    ]
    ends = intervals.ends("success_rate")
    assert ends is not None
    low, high = ends
    assert min(means) <= low <= scores.success_rate <= high <= max(means)
    one = cut_windows(grouped(world, ["anna"] * 48), horizon=3, split="test")
    assert one.groups is None
    assert ScoredWindows(found, one).intervals().resampled == "12 videos"
