"""A data set with other action text."""

import numpy as np
import pytest

from cefito.data.action_text import with_action_text
from cefito.data.prepared import open_dataset
from cefito.errors import DataError


def embed(names):
    text = np.array([[len(name), 1] for name in names], np.float32)
    return text, {"model": "owner/lengths", "layer": "last"}


def test_everything_but_the_action_text_stays(tiny_dataset, tmp_path):
    written = with_action_text(tiny_dataset, tmp_path / "out", embed)
    assert open_dataset(tmp_path / "out", verify=True).fingerprint == written.fingerprint
    assert written.name == "tiny-lengths-last"
    assert written.annotations == tiny_dataset.annotations
    np.testing.assert_array_equal(written.start, tiny_dataset.start)
    names = [action.name for action in tiny_dataset.taxonomy.actions]
    np.testing.assert_array_equal(written.action_text, embed(names)[0])
    record = written.provenance["action_text"]
    assert record["fingerprint"] == tiny_dataset.fingerprint
    assert record["model"] == "owner/lengths"


def test_the_name_tells_the_last_text_only(tiny_dataset, tmp_path):
    def given(names):
        return embed(names)[0], {"model": "mine.npy", "layer": "as given"}

    first = with_action_text(tiny_dataset, tmp_path / "first", given)
    second = with_action_text(first, tmp_path / "second", embed)
    assert (first.name, second.name) == ("tiny-mine.npy", "tiny-lengths-last")


def test_nothing_is_embedded_for_a_folder_that_is_taken(tiny_dataset, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")

    def never(_):
        raise AssertionError

    with pytest.raises(DataError, match="out: exists already"):
        with_action_text(tiny_dataset, tmp_path / "out", never)
    with pytest.raises(DataError, match="mine: exists already"):
        with_action_text(tiny_dataset, tmp_path / "out" / "mine", never)
