"""What is no annotation of a benchmark."""

import numpy as np
import pytest

from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.feature_files import FileFolder
from cefito.errors import ConfigError, DataError


def test_other_forms_are_refused(make_source, wrong, tmp_path):
    source = make_source(features=None)
    wrong("niv", source, "has its own taxonomy", taxonomy=source)
    wrong("niv", tmp_path / "nowhere.json", r"nowhere.json: no such file. Known forms: a folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    wrong("niv", empty, "the annotations have no known form. Known forms")
    (empty / "a_train.json").write_text("[]")
    wrong("niv", empty / "a_train.json", "the annotations have no known form")
    with pytest.raises(ConfigError, match="benchmark 'ytb': expected one of crosstask, coin"):
        read_benchmark("ytb", empty)


def test_a_folder_of_far_too_many_files_is_not_walked(tmp_path, monkeypatch):
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.zeros((1, 2)))
    monkeypatch.setattr("cefito.data.readers.feature_files._MOST", 4)
    assert FileFolder(tmp_path).find(["3"])[0].name == "3.npy"
    (tmp_path / "another.txt").touch()
    with pytest.raises(DataError, match="holds more than 4 files"):
        FileFolder(tmp_path)
