from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.folds import fold_view, known_videos, split_folds
from cefito.data.windows import cut_windows, split_videos
from cefito.errors import ConfigError, DataError


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
        with pytest.raises(ConfigError, match=rf"folds {count}: expected from 2 to .* \(36\)"):
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
