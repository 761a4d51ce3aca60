"""Embeddings of actions' names, from an encoder or a file."""

import numpy as np
import pytest

from cefito.encoders import actions
from cefito.encoders.actions import embed_actions
from cefito.errors import ConfigError, DataError

NAMES = ["boil", "pour", "boil"]


class Lengths:
    """A text encoder: the length of a text, twice."""

    def __init__(self, model, *, layer, prompt, normalise, revision, **_):
        self.settings = {"model": model, "layer": layer or "only", "prompt": prompt}
        self.settings |= {"normalise": normalise, "revision": revision}
        self.asked = []
        asked_of.append(self.asked)

    def encode(self, texts):
        self.asked += texts
        return np.array([[len(text)] * 2 for text in texts], np.float32)

    def describe(self):
        return self.settings


asked_of: list[list[str]] = []


@pytest.fixture(autouse=True)
def lengths(monkeypatch):
    asked_of.clear()
    monkeypatch.setattr(actions, "PretrainedText", Lengths)


def test_equal_names_are_encoded_once():
    vectors, made_with = embed_actions(NAMES, cached=False)
    assert asked_of == [["boil", "pour"]]
    assert vectors.tolist() == [[4, 4]] * 3
    assert made_with["model"] == "clip"
    assert made_with["prompt"] == "{action}"


def test_the_cache_is_asked_first(tmp_path):
    first, _ = embed_actions(NAMES, cache=tmp_path / "cache")
    again, _ = embed_actions(NAMES, cache=tmp_path / "cache")
    np.testing.assert_array_equal(first, again)
    assert asked_of == [["boil", "pour"], []]


def test_a_file_is_taken_as_it_is(tmp_path):
    rows = np.arange(6, dtype=np.float16).reshape(3, 2)
    np.save(tmp_path / "rows.npy", rows)
    vectors, made_with = embed_actions(NAMES, str(tmp_path / "rows.npy"))
    np.testing.assert_array_equal(vectors, rows)
    assert made_with["model"] == "rows.npy"
    assert made_with["revision"].startswith("sha256:")
    assert {made_with[name] for name in ("layer", "prompt", "normalisation")} == {"as given"}
    for settings in ({"prompt": ""}, {"layer": "mean"}, {"normalise": True}, {"revision": "v1"}):
        with pytest.raises(ConfigError, match="used unchanged") as wrong:
            embed_actions(NAMES, str(tmp_path / "rows.npy"), **settings)
        assert wrong.value.setting == next(iter(settings))
    with pytest.raises(DataError, match="has 2 actions"):
        embed_actions(NAMES[:2], str(tmp_path / "rows.npy"))
