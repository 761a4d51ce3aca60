import numpy as np
import pytest
import torch

from cefito.cli import main
from cefito.data import open_dataset
from cefito.data.prepared import write_dataset
from cefito.encoders.text import PretrainedText


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    """Folder of a tiny T5, randomly initialised."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("models") / "tiny-t5"
    torch.manual_seed(1)  # the model's own initialisation knows no generators
    words = [
        "<pad>",
        "</s>",
        "<unk>",
        "boil",
        "pour",
        "wait",
        "cut",
        "heat",
        "spread",
        "jack",
        "up",
        "down",
        "step",
        ":",
    ]
    pieces = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=20, d_model=12, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    ).save_pretrained(folder)
    return folder


def call(capsys, *arguments):
    code = main(["embed", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def failed(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def test_everything_but_the_action_text_stays(tiny_dataset, t5, tmp_path, capsys):
    out = tmp_path / "out"
    code, table, said = call(capsys, tiny_dataset.folder, "--encoder", t5, "--out", out)
    assert code == 0
    written = open_dataset(out, verify=True)
    assert said == f"wrote {out}: tiny-tiny-t5-mean, fingerprint {written.fingerprint[:12]}\n"
    assert written.annotations == tiny_dataset.annotations
    for name in ("start", "end"):
        np.testing.assert_array_equal(getattr(written, name), getattr(tiny_dataset, name))
        assert getattr(written, name).dtype == getattr(tiny_dataset, name).dtype
    assert {
        name for name in written.hashes if written.hashes[name] != tiny_dataset.hashes[name]
    } == {"action_text.safetensors"}
    names = [action.name for action in written.taxonomy.actions]
    np.testing.assert_allclose(written.action_text, PretrainedText(t5).encode(names), atol=1e-6)
    about = written.provenance["action_text"]
    assert written.provenance == {**tiny_dataset.provenance, "action_text": about}
    assert about.pop("cefito")
    assert about.pop("revision").startswith("sha256:")
    assert about == {
        "model": "tiny-t5",
        "layer": "mean",
        "layer_means": "mean of the encoder's last hidden states over all tokens, the "
        "end token among them",
        "prompt": "{action}",
        "normalisation": "none",
        "suffix": "-tiny-t5-mean",
        "dataset": "tiny",
        "fingerprint": tiny_dataset.fingerprint,
    }
    lines = [line.split(maxsplit=1) for line in table.splitlines()]
    assert ["Action", "text"] in lines
    assert ["model", "tiny-t5"] in lines
    assert ["size", "12"] in lines


def test_options_are_passed_on(tiny_dataset, t5, tmp_path, capsys):
    assert (
        call(
            capsys,
            tiny_dataset.folder,
            "--encoder",
            t5,
            "--out",
            tmp_path / "out",
            "--prompt",
            "step : {action}",
            "--normalise",
            "--layer",
            "mean",
            "--batch-size",
            3,
            "--device",
            "cpu",
            "--no-cache",
        )[0]
        == 0
    )
    written = open_dataset(tmp_path / "out")
    expected = PretrainedText(t5, prompt="step : {action}", normalise=True).encode(
        [action.name for action in written.taxonomy.actions]
    )
    np.testing.assert_allclose(written.action_text, expected, atol=1e-6)
    assert written.provenance["action_text"]["prompt"] == "step : {action}"
    assert written.provenance["action_text"]["normalisation"] == "unit length"
    assert not (tmp_path / "home-cache").exists()


def test_cache(tiny_dataset, t5, tmp_path, capsys, monkeypatch):
    call(capsys, tiny_dataset.folder, "--encoder", t5, "--out", tmp_path / "one")
    assert len(list((tmp_path / "home-cache" / "cefito" / "text").iterdir())) == 1
    call(
        capsys,
        tiny_dataset.folder,
        "--encoder",
        t5,
        "--out",
        tmp_path / "two",
        "--cache",
        tmp_path / "mine",
    )
    assert len(list((tmp_path / "mine").iterdir())) == 1
    monkeypatch.setattr("cefito.encoders.text.load_weights", None)  # the model is not needed again
    for number, option in enumerate([[], ["--cache", tmp_path / "mine"]]):
        code, _, _ = call(
            capsys,
            tiny_dataset.folder,
            "--encoder",
            t5,
            "--out",
            tmp_path / f"again{number}",
            *option,
        )
        assert code == 0
        assert (
            open_dataset(tmp_path / f"again{number}").fingerprint
            == open_dataset(tmp_path / "one").fingerprint
        )


def test_equal_names_are_encoded_once(
    make_source, tiny_taxonomy, t5, tmp_path, capsys, monkeypatch
):
    tiny_taxonomy["actions"][7]["name"] = tiny_taxonomy["actions"][0]["name"]
    main(
        [
            "data",
            "prepare",
            "custom",
            str(make_source(taxonomy=tiny_taxonomy)),
            str(tmp_path / "data"),
        ]
    )
    capsys.readouterr()
    asked, encode = [], PretrainedText.encode
    monkeypatch.setattr(
        PretrainedText,
        "encode",
        lambda self, texts: asked.append(list(texts)) or encode(self, texts),
    )
    assert (
        call(capsys, tmp_path / "data", "--encoder", t5, "--out", tmp_path / "out", "--no-cache")[0]
        == 0
    )
    assert asked == [["boil", "pour", "wait", "cut", "heat", "spread", "jack up"]]
    text = open_dataset(tmp_path / "out").action_text
    np.testing.assert_array_equal(text[7], text[0])
    assert len(text) == 8


def test_embeddings_from_a_file(tiny_dataset, tmp_path, capsys):
    rows = np.random.default_rng(3).standard_normal((8, 5)).astype(np.float16)
    np.save(tmp_path / "mine.npy", rows)
    code, out, said = call(
        capsys, tiny_dataset.folder, "--encoder", tmp_path / "mine.npy", "--out", tmp_path / "out"
    )
    assert code == 0
    assert "as given" in out
    assert "tiny-mine.npy" in said
    written = open_dataset(tmp_path / "out")
    np.testing.assert_array_equal(written.action_text, rows)
    assert written.provenance["action_text"]["model"] == "mine.npy"
    # the action text of a prepared data set can be given to another one
    stored = tmp_path / "out" / "action_text.safetensors"
    assert (
        call(capsys, tiny_dataset.folder, "--encoder", stored, "--out", tmp_path / "again")[0] == 0
    )
    np.testing.assert_array_equal(open_dataset(tmp_path / "again").action_text, rows)


def test_the_name_tells_the_last_embeddings_only(tiny_dataset, t5, tmp_path, capsys):
    np.save(tmp_path / "mine.npy", np.ones((8, 2), np.float32))
    call(capsys, tiny_dataset.folder, "--encoder", tmp_path / "mine.npy", "--out", tmp_path / "one")
    call(capsys, tmp_path / "one", "--encoder", t5, "--out", tmp_path / "two")
    written = open_dataset(tmp_path / "two")
    assert written.name == "tiny-tiny-t5-mean"
    assert written.provenance["action_text"]["dataset"] == "tiny-mine.npy"


def test_provenance_of_another_form_is_no_obstacle(tiny_dataset, tmp_path, capsys):
    write_dataset(
        tmp_path / "data",
        name="kitchen",
        annotations=tiny_dataset.annotations,
        start=tiny_dataset.start,
        end=tiny_dataset.end,
        provenance={"action_text": "by hand"},
    )
    np.save(tmp_path / "mine.npy", np.ones((8, 2), np.float32))
    assert (
        call(
            capsys, tmp_path / "data", "--encoder", tmp_path / "mine.npy", "--out", tmp_path / "out"
        )[0]
        == 0
    )
    assert open_dataset(tmp_path / "out").name == "kitchen-mine.npy"


def test_a_field_takes_the_new_text(tiny_dataset, t5, tmp_path, capsys):
    from cefito.data.windows import cut_windows
    from cefito.field.predictor import Predictor
    from cefito.field.settings import FieldConfig

    call(capsys, tiny_dataset.folder, "--encoder", t5, "--out", tmp_path / "out")
    windows = cut_windows(open_dataset(tmp_path / "out"), horizon=3, split="train")
    assert windows.action_text.shape == (8, 12)
    config = FieldConfig(action_encoding="text", width=12, heads=2, depth=1)
    predictor = Predictor(
        config=config,
        horizon=3,
        observation_dim=4,
        action_count=8,
        action_vectors=torch.from_numpy(windows.action_text),
    )
    assert "action_vectors" not in dict(predictor.named_parameters())  # frozen
    np.testing.assert_array_equal(predictor.action_vectors, windows.action_text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--encoder", "nonsense"],
            "error: nonsense: no such folder, and no name of a model. Give one of clip, t5, ",
        ),
        (["--encoder", "nowhere.npy"], "error: nowhere.npy: no such file. Give one row an action"),
        (["--encoder", "few.npy"], "few.npy: has shape [3, 2], but the data set has 8 actions"),
        (
            ["--encoder", "few.npy", "--prompt", "{action}"],
            "few.npy: is a file of embeddings, which are taken as they are",
        ),
        (
            ["--encoder", "t5", "--prompt", "action"],
            "prompt 'action': does not say where the action stands",
        ),
        (["--encoder", "t5", "--device", "tpu9"], "unknown device 'tpu9'"),
    ],
)
def test_errors_are_one_line_and_write_nothing(
    tiny_dataset, tmp_path, capsys, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", np.ones((3, 2), np.float32))
    assert message in failed(capsys, tiny_dataset.folder, *arguments, "--out", "out")
    assert not (tmp_path / "out").exists()


def test_target_that_is_taken_is_told_before_any_work(tiny_dataset, tmp_path, capsys):
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine").write_text("keep")
    assert "out: exists already." in failed(
        capsys, tiny_dataset.folder, "--encoder", "clip", "--out", target
    )
    assert [path.name for path in target.iterdir()] == ["mine"]


def test_no_data_set(tmp_path, capsys):
    assert "dataset.json: no such file" in failed(capsys, tmp_path, "--out", tmp_path / "out")


def test_hub_that_cannot_be_reached(tiny_dataset, tmp_path, capsys, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    line = failed(capsys, tiny_dataset.folder, "--out", tmp_path / "out")
    assert line.startswith(
        "error: openai/clip-vit-base-patch32: could not be fetched from the Hugging Face hub ("
    )
    assert "hf download openai/clip-vit-base-patch32 --local-dir FOLDER" in line
    assert not (tmp_path / "out").exists()


def test_help_names_the_encoders(capsys):
    assert main(["embed", "--help"]) == 0
    out = capsys.readouterr().out
    for word in ("clip", "t5", "--prompt", "--no-cache", "{action}"):
        assert word in out
