import json
import shutil
import sys

import numpy as np
import pytest
import torch

from cefito.encoders.text import LAYERS, TEXT_MODELS, PretrainedText
from cefito.errors import ConfigError, DataError
from traps import Trap

TEXTS = ["pour water", "jack up", "cut", "whisk the mixture", "jack down the car", "pour water"]


def encoded(folder, texts=TEXTS, **options):
    return PretrainedText(folder, **options).encode(texts)


def refused(folder, message):
    with pytest.raises(ConfigError, match=message):
        encoded(folder, ["cut"])


def slow(folder, text, layer):
    """One text at a time, nothing padded, positions and pooling written out."""
    import transformers

    ids = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if layer == "mean":
            states = model.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]
            return sum(states) / len(states)
        states = model.text_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        row = states[ids.index(53)]
        return model.text_projection.weight @ row if layer == "projected" else row


def test_clip_with_the_end_token_that_old_configurations_state(models, copied):
    # as openai's: the vector is read at the highest id, which is the end token's
    folder = copied("clip")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(encoded(folder), encoded(models / "clip"), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "layer"), [(kind, layer) for kind, layers in LAYERS.items() for layer in layers]
)
def test_every_kind_and_layer_against_a_slow_reference(models, kind, layer):
    encoder = PretrainedText(models / kind, layer=layer)
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert (encoder.encode(TEXTS) == vectors).all()
    for row, text in zip(vectors, TEXTS, strict=True):
        np.testing.assert_allclose(row, slow(models / kind, text, layer), atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01  # the tiny model does tell texts apart
    small = encoded(models / kind, layer=layer, batch_size=2)
    np.testing.assert_allclose(small, vectors, atol=1e-5)
    assert encoder.encode([]).shape == (0, vectors.shape[1])
    description = encoder.describe()
    assert json.loads(json.dumps(description)) == description
    assert description["layer"] == layer


def test_revision_of_a_folder_is_its_content(models, copied):
    folder = copied("t5")
    first = PretrainedText(models / "t5").describe()["revision"]
    assert first.startswith("sha256:")
    assert PretrainedText(folder).describe()["revision"] == first
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert PretrainedText(folder).describe()["revision"] != first


def test_loading_writes_nothing_and_leaves_settings(models, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    PretrainedText(models / "clip").encode(["cut"])
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_name_is_fetched_from_the_hub(models, monkeypatch):
    import huggingface_hub

    calls = []

    def fetch(name, *, revision, allow_patterns, ignore_patterns):
        calls.append((name, revision, allow_patterns[-1]))
        return str(models / "clip")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    encoder = PretrainedText("clip", revision="main")
    assert calls == [(TEXT_MODELS["clip"], "main", "*.safetensors")]
    assert encoder.describe()["model"] == "openai/clip-vit-base-patch32"
    assert encoder.describe()["layer"] == "pooled"  # the paper's, by default
    assert encoder.describe()["revision"] == "clip"  # the snapshot's folder, named by the commit
    np.testing.assert_array_equal(encoder.encode(TEXTS), encoded(models / "clip"))


def test_an_unreachable_hub(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    command = "hf download openai/clip-vit-base-patch32 --local-dir FOLDER"
    with pytest.raises(ConfigError, match=rf"^openai/.*: could not be fetched.*{command}"):
        PretrainedText("clip")
    with pytest.raises(ConfigError, match=r"^models/mine@v2: no such folder here"):
        PretrainedText("models/mine", revision="v2")


@pytest.mark.parametrize("package", ["huggingface_hub", "transformers"])
def test_missing_package(models, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"need a package .*{package}.*pip install .*\[text\]'$"):
        PretrainedText("clip" if package == "huggingface_hub" else models / "clip").encode(["cut"])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("../nowhere", {}, r"^\.\./nowhere: no such folder, and not a name of a model"),
        ("nonsense", {}, "Give one of clip, t5, a folder"),
        (None, {"layer": "mean"}, "layer 'mean': .*clip has pooled, projected. Choose one"),
        (None, {"revision": "main"}, "revision 'main': .*clip is a folder, without rev"),
    ],
)
def test_wrong_arguments(models, model, options, message):
    with pytest.raises(ConfigError, match=message):
        PretrainedText(models / "clip" if model is None else model, **options)


def test_folders_without_a_known_model(copied, tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        PretrainedText(tmp_path)
    folder = copied("t5")
    for text, kind in (('{"model_type": "bert"}', "bert"), ("[]", "")):
        (folder / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=f"model of type '{kind}'"):
            PretrainedText(folder)


@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        ("t5", "clip", r"its tokenizer \(54 tokens\) does not belong to its model \(32 tokens"),
        ("clip", "t5", "ends texts with token 1, but its model reads its vector at 53"),
        ("clip", "none", "has no tokenizer.json or "),
        ("t5", "endless", "its tokenizer adds no end token"),
    ],
)
def test_tokenizers_that_do_not_fit(copied, models, kind, other, message):
    folder = copied(kind)
    if other == "endless":
        value = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**value, "post_processor": None}))
    else:
        for path in folder.glob("*token*"):
            path.unlink()
        for path in (models / other).glob("*token*"):
            shutil.copy(path, folder)
    refused(folder, message)


def test_weights_that_are_missing_or_broken(copied):
    from safetensors.torch import load_file, save_file

    folder = copied("clip")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    vision = {name: tensor for name, tensor in tensors.items() if "vision" in name}
    other = {**tensors, "text_model.final_layer_norm.weight": torch.ones(3)}
    for kept, message in ((vision, r"lacks \d+ tensors"), (other, "could be loaded")):
        save_file(kept, path, metadata={"format": "pt"})
        refused(folder, message)
    path.write_bytes(b"broken")
    refused(folder, "could be loaded")


def test_pickled_weights_are_refused_without_running_them(copied, tmp_path):
    import pickle

    folder = copied("t5")
    (folder / "model.safetensors").unlink()
    harmful = {"shared.weight": Trap(tmp_path / "ran")}
    for save in (
        lambda path: torch.save(harmful, path),
        lambda path: path.write_bytes(pickle.dumps(harmful)),
    ):
        save(folder / "pytorch_model.bin")
        refused(folder, "no T5EncoderModel could be loaded")
    assert not (tmp_path / "ran").exists()


def test_vectors_must_be_finite(copied):
    from safetensors.torch import load_file, save_file

    folder = copied("clip")
    tensors = load_file(folder / "model.safetensors")
    tensors["text_model.final_layer_norm.bias"][0] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"2 texts hold NaN .*text 0"):
        PretrainedText(folder).encode(["cut", "pour"])


def test_text_that_is_too_long(models):
    text = "ab" * 26
    with pytest.raises(DataError, match=r"'abab.*': has 54 tokens; .*48\."):
        PretrainedText(models / "clip").encode(["cut", text])
    relative = PretrainedText(models / "t5")  # its positions
    assert relative.encode(["cut " * 200]).shape == (1, 16)
