"""A data set with other action text."""

import numpy as np

from cefito.data.action_text import with_action_text
from cefito.data.prepared import open_dataset

MADE = {"model": "owner/lengths", "layer": "last"}


def test_everything_but_the_action_text_stays(tiny_dataset, tmp_path):
    names = [action.name for action in tiny_dataset.taxonomy.actions]
    text = np.array([[len(name), 1] for name in names], np.float32)
    written = with_action_text(tiny_dataset, tmp_path / "out", text, MADE)
    assert open_dataset(tmp_path / "out", verify=True).fingerprint == written.fingerprint
    assert written.name == "tiny-lengths-last"
    assert written.annotations == tiny_dataset.annotations
    np.testing.assert_array_equal(written.start, tiny_dataset.start)
    np.testing.assert_array_equal(written.action_text, text)
    record = written.provenance["action_text"]
    assert record["fingerprint"] == tiny_dataset.fingerprint
    assert record["model"] == "owner/lengths"
    given = {"model": "mine.npy", "layer": "as given"}  # the name tells the last text only
    assert with_action_text(written, tmp_path / "two", text, given).name == "tiny-mine.npy"
