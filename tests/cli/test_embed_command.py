"""`cefito embed`: a copy of a data set with text embeddings."""

import json

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.encoders.text import LAYERS, PretrainedText
from cefito.markup import word_vectors
from tiny_models import tiny_t5


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    """Folder of a tiny T5."""
    pytest.importorskip("transformers")
    words = "boil pour wait cut heat spread jack up down step :"
    return tiny_t5(tmp_path_factory.mktemp("models") / "tiny-t5", [words], size=12)


def test_only_the_action_text_changes(tiny_dataset, t5, tmp_path, ran):
    out = tmp_path / "out"
    table, said = ran("embed", tiny_dataset.folder, "--out", out, "--encoder", t5)
    value = json.loads(
        ran("embed", tiny_dataset.folder, "--out", f"{out}2", "--encoder", t5, "--json").out
    )
    assert (value["out"], value["actions"]) == (f"{out}2", len(tiny_dataset.taxonomy.actions))
    assert value["fingerprint"] == open_dataset(out).fingerprint
    written = open_dataset(out)
    assert said == f"wrote {out}: tiny-tiny-t5-mean, fingerprint {written.fingerprint[:12]}\n"
    changed = {name for name, found in written.hashes.items() if found != tiny_dataset.hashes[name]}
    assert changed == {"action_text.safetensors"}
    names = [action.name for action in written.taxonomy.actions]
    assert written.action_text is not None
    np.testing.assert_allclose(written.action_text, PretrainedText(t5).encode(names), atol=1e-6)
    about = written.provenance["action_text"]
    assert written.provenance == {**tiny_dataset.provenance, "action_text": about}
    assert about.pop("cefito")
    assert about.pop("revision").startswith("sha256:")
    assert about == {
        **{"model": "tiny-t5", "layer": "mean", "layer_means": LAYERS["t5"]["mean"]},
        "suffix": "-tiny-t5-mean",
        **{"dataset": "tiny", "fingerprint": tiny_dataset.fingerprint},
    }
    lines = [line.split(maxsplit=1) for line in table.splitlines()]
    assert all(line in lines for line in (["model", "tiny-t5"], ["size", "12"]))


def test_tables_of_wordllama(tiny_dataset, tmp_path, ran):
    pytest.importorskip("wordllama")
    ran("embed", tiny_dataset.folder, "--out", tmp_path / "out", "--encoder", "wordllama")
    names = [action.name for action in tiny_dataset.taxonomy.actions]
    found = open_dataset(tmp_path / "out").action_text
    assert found is not None
    np.testing.assert_allclose(found, word_vectors(names), atol=1e-6)


def test_embeddings_from_a_file(tiny_dataset, t5, tmp_path, ran):
    rows = np.random.default_rng(3).standard_normal((8, 5)).astype(np.float16)
    np.save(tmp_path / "mine.npy", rows)
    file, place = tmp_path / "mine.npy", tmp_path / "out"
    out, said = ran("embed", tiny_dataset.folder, "--out", place, "--encoder", file)
    assert "as given" in out
    assert "tiny-mine.npy" in said
    written = open_dataset(tmp_path / "out")
    np.testing.assert_array_equal(written.action_text, rows)
    assert written.provenance["action_text"]["model"] == "mine.npy"
    # only the last embeddings are part of the name
    ran("embed", place, "--out", tmp_path / "two", "--encoder", t5)
    assert open_dataset(tmp_path / "two").name == "tiny-tiny-t5-mean"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "nonsense: no such folder, and not a name of a model."),
        ("nowhere.npy", "nowhere.npy: no such file. Expected a .npy file of the"),
        ("few.npy", "few.npy: has shape [3, 2]; expected [8, any]"),
        ("few.npy --layer mean", "--layer and --revision apply to other models"),
        ("t5 --device tpu9", "device 'tpu9': is unknown"),
        ("clip", "clip-vit-base-patch32: could not be fetched from the Hugging"),
    ],
)
def test_errors_are_one_line_and_write_nothing(
    tiny_dataset, tmp_path, refused, monkeypatch, arguments, message
):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", np.ones((3, 2), np.float32))
    embed = ("embed", tiny_dataset.folder, "--out", "out", "--encoder", *arguments.split())
    assert message in refused(*embed)
