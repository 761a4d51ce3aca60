"""Preparing one's own data in Python is what the command line does."""

import numpy as np
import pytest

import cefito
from cefito.cli import main

TABLE = """video,task,step,start,end,split
a,tea,boil,0,4,train
a,tea,pour,5,9,train
b,tea,boil,1,3,test
b,tea,pour,4,8,test
"""


@pytest.fixture
def given(tmp_path):
    """A table, and a folder with features of its two videos."""
    table, features = tmp_path / "steps.csv", tmp_path / "features"
    table.write_text(TABLE)
    features.mkdir()
    for number, video in enumerate("ab"):
        rows = np.random.default_rng(number).standard_normal((12, 5)).astype(np.float32)
        np.save(features / f"{video}.npy", rows)
    return table, features


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_table_as_from_the_command_line(given, tmp_path, kind):
    table, features = given
    settings = {"features": kind(features), "name": "mine", "seconds": 1, "precision": "float32"}
    ours = cefito.prepare(kind(table), kind(tmp_path / "ours"), **settings)
    theirs = tmp_path / "theirs"
    options = ["--features", features, "--name", "mine", "--seconds", 1, "--precision", "float32"]
    arguments = ["data", "prepare", "custom", table, theirs, *options]
    assert main([str(argument) for argument in arguments]) == 0
    assert ours.fingerprint == cefito.open_dataset(theirs).fingerprint
    assert (ours.name, ours.observation_dim, len(ours.videos)) == ("mine", 5, 2)


def test_a_folder_of_annotations_with_features(given, tmp_path):
    table, features = given
    first = cefito.prepare(table, tmp_path / "first", features=features)
    folder = tmp_path / "annotations"
    folder.mkdir()
    for name in ("taxonomy.json", "videos.jsonl"):
        (folder / name).write_bytes((first.folder / name).read_bytes())
    second = cefito.prepare(folder, tmp_path / "second", features=features)
    assert second.annotations == first.annotations
    np.testing.assert_array_equal(second.start, first.start)
