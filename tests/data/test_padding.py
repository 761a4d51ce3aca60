"""Padding as PDPP, KEPP and MTID do."""

from __future__ import annotations

import numpy as np
import pytest

from cefito.data import cut_windows, open_dataset
from cefito.data.annotations import read_annotations
from cefito.data.folds import pad_dataset
from cefito.data.windows import count_windows, split_videos
from cefito.errors import DataError


def test_short_videos_begin_with_copies_of_their_first_step(world, tmp_path):
    horizon = 1 + max(len(video.steps) for video in world.videos) - 2  # most videos are shorter
    padded = pad_dataset(world, tmp_path / "padded", horizon=horizon)
    assert padded.name == f"{world.name}-padded{horizon}"
    assert open_dataset(tmp_path / "padded").fingerprint == padded.fingerprint
    short = 0
    for index, (old, new) in enumerate(zip(world.videos, padded.videos, strict=True)):
        missing = max(0, horizon - len(old.steps))
        short += missing > 0
        assert new.steps == (old.steps[0],) * missing + old.steps
        first, was = padded.first_row[index], world.first_row[index]
        for array, before in ((padded.start, world.start), (padded.end, world.end)):
            rows = [was] * missing + list(range(was, was + len(old.steps)))
            np.testing.assert_array_equal(array[first : first + len(new.steps)], before[rows])
    assert short
    test = cut_windows(padded, horizon=horizon, split="test")
    # each video gives a window
    assert set(test.video.tolist()) == set(split_videos(padded.videos)["test"])


@pytest.mark.parametrize("horizon", [0, -1])
def test_what_is_no_horizon(world, tmp_path, horizon):
    with pytest.raises(DataError, match=f"horizon {horizon}: expected"):
        pad_dataset(world, tmp_path / "padded", horizon=horizon)
    assert not (tmp_path / "padded").exists()


@pytest.mark.parametrize(("horizon", "windows"), [(3, 4583), (4, 3901), (5, 3296), (6, 2805)])
def test_the_published_counts_of_crosstask(shared_data, horizon, windows):
    """As many test windows as the lists of PDPP hold."""
    videos = read_annotations(shared_data / "crosstask").videos
    videos = [video for video in videos if video.split == "test"]
    short = sum(video.in_protocol and 0 < len(video.steps) < horizon for video in videos)
    assert count_windows(videos, horizon) + short == windows
