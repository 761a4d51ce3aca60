"""A preparation that was killed goes on, and only with what still fits."""

import os
import shutil

import numpy as np
import pytest

from cefito.data.readers import shards
from cefito.data.readers.assemble import prepare
from cefito.progress import silent


@pytest.fixture
def opened(monkeypatch):
    """Names of the feature files that were opened."""
    names, original = [], shards.load_features

    def open_counted(path, rate):
        names.append(path.stem)
        return original(path, rate)

    monkeypatch.setattr(shards, "load_features", open_counted)
    return names


def made(source, folder, work, beyond="drop"):
    """The shards of all videos with steps."""
    jobs = [
        shards.Job(video=video, path=folder / f"{video.video_id}.npy")
        for video in source.annotations.videos
        if video.steps
    ]
    recipe = shards.Recipe(beyond=beyond, seconds=3, precision="float16")
    return shards.make_shards(jobs, work, recipe=recipe, workers=1, progress=silent)


def test_a_killed_preparation_goes_on(store, source, tmp_path, monkeypatch, opened):
    whole = prepare(source, store[1], tmp_path / "whole")
    monkeypatch.setattr(shards, "SHARD_VIDEOS", 2)
    original, opened[:] = shards.load_features, []

    def killed(path, rate):
        if path.stem == "h":
            raise KeyboardInterrupt
        return original(path, rate)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "load_features", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, store[1], tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / ".out.work").iterdir())) >= 3
    assert opened[:6] == ["a", "b", "c", "d", "e", "f"]
    opened.clear()
    again = prepare(source, store[1], tmp_path / "out", workers=1)
    # the last shard may have been finished
    assert opened == ["h", "i", "j"] or opened == ["h", "i"]
    assert again.fingerprint == whole.fingerprint
    assert not (tmp_path / ".out.work").exists()


def test_finished_work_that_no_longer_fits_is_done_again(
    store, source, tmp_path, monkeypatch, opened, features_of
):
    _, features, _ = store
    monkeypatch.setattr(shards, "SHARD_VIDEOS", 3)
    work = tmp_path / ".out.work"
    work.mkdir()

    def make(beyond="drop"):
        opened.clear()
        return made(source, features, work, beyond), list(opened)

    first, names = make()
    assert names == [video.video_id for video in source.annotations.videos if video.steps]
    assert make() == (first, [])
    assert make("rewrite")[1] == names  # other settings
    np.save(features / "c.npy", features_of("c", 12))  # another file
    assert make()[1] == ["a", "b", "c"]
    os.truncate(first[3].shard, 40)  # a damaged shard
    assert make()[1] == ["d", "e", "f"]


def test_finished_work_is_of_one_folder_of_features(store, source, tmp_path, opened):
    other = shutil.copytree(store[1], tmp_path / "other")  # same sizes and times
    work = tmp_path / "work"
    work.mkdir()
    for folder in (store[1], other):
        opened.clear()
        made(source, folder, work)
        assert opened[:3] == ["a", "b", "c"]
