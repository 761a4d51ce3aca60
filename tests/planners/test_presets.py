"""Presets as they are shipped, with bases, variants and overrides."""

import copy
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

import cefito.planners
from cefito.errors import ConfigError
from cefito.planners.methods import (
    METHODS,
    PUBLISHED,
    listed_methods,
    load_config,
    method_settings,
    preset_names,
    published_sizes,
)
from cefito.runtime import weights_to_come
from cefito.settings import Settings, flattened, setting_names

PRESETS = preset_names()
FOLDER = Path(cefito.planners.__file__).parent
FILES = sorted(FOLDER.glob("*/presets/*.toml"))


def setting(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_for_every_data_set(preset, method):
    for dataset in ("", "crosstask", "coin", "niv"):
        for horizon in (3, 4):
            config = load_config(preset, method=method, dataset=dataset, horizon=horizon)
            assert (config.preset, config.method) == (preset, method)
            assert type(config.settings) is METHODS[method].settings
    assert method_settings(method, config.sections, place="here") == config.settings
    for twin in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert twin == config


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_key_of_a_preset_is_a_setting(path):
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    parts = content.pop("variant", [])
    assert "base" not in content
    sections = {key.split(".")[0] for part in (content, *parts) for key in part}
    methods = [m for m in METHODS.values() if sections & set(m.settings.model_fields)]
    known = {name for method in methods for name in setting_names(method.settings)}
    for part in parts:
        given = {key: value for key, value in part.items() if key not in ("dataset", "horizon")}
        assert set(flattened(given)) <= known
    settings = load_config(path.stem, method=methods[0].name).settings
    for key, stated in flattened(content).items():
        assert key in known
        if key.partition(".")[0] in type(settings).model_fields:
            value = setting(settings, key)
            assert value == (tuple(stated) if isinstance(stated, list) else stated)


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_the_papers(method):
    if not METHODS[method].changes:
        assert load_config("paper", method=method).settings == METHODS[method].settings()


def test_values_of_the_paper():
    paper = load_config("paper", dataset="crosstask", horizon=3).settings
    field = paper.field
    assert (field.width, field.depth, field.heads, field.mlp_ratio) == (384, 4, 6, 4)
    assert (field.distance, field.normalisation) == ("mean_square", "layer")
    assert (paper.training.negatives.count, paper.training.negatives.hard) == (50, 0.8)
    assert paper.training.negatives.permuted == paper.training.negatives.edited == 0
    assert (paper.training.loss.kind, paper.training.loss.reduction) == ("triplet", "mean")
    margin = paper.training.loss.margin
    assert (margin.low, margin.high, margin.order) == (0.01, 0.1, 0)
    optimiser = paper.training.optimiser
    assert (optimiser.learning_rate, optimiser.weight_decay, optimiser.epochs) == (5e-4, 1e-3, 200)
    assert (paper.training.auxiliary.goal, paper.training.auxiliary.negatives) == ("true", False)
    classifier = paper.classifier_training.optimiser
    assert (classifier.learning_rate, classifier.weight_decay) == (1e-4, 0)
    assert paper.training.augmentation.noise == 0
    assert paper.search.actions == "training"


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("training.optimiser.epochs", 7, 7),
        ("training.optimiser.learning_rate", "2e-4", 2e-4),
        ("field.distance", "mean_square", "mean_square"),
        ("field.distance", '"mean_square"', "mean_square"),
        ("field.centre", "true", True),
        ("classifier.hidden", "[4, 5, 6]", [4, 5, 6]),
    ],
)
def test_overrides(key, given, value):
    overrides = {key: given, "kepp.folds": 3}
    with pytest.raises(ConfigError, match=r"'kepp\.folds': is not read by cefito"):
        load_config("paper", overrides=overrides)
    config = load_config("paper", overrides=overrides, shared=True)
    assert flattened(config.sections) == flattened(load_config("paper").sections) | {key: value}


def test_overrides_beat_variants_and_later_ones_beat_earlier():
    given = {"training.optimiser.batch_size": 8, "training.optimiser": {"batch_size": 9}}
    optimiser = load_config(
        "released", dataset="niv", horizon=3, overrides=given
    ).settings.training.optimiser
    assert (optimiser.batch_size, optimiser.learning_rate) == (9, 5e-5)


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        ({"training.optimiser.epoch": 3}, "training.optimiser.epoch"),
        ({"nonsense": 3}, "nonsense"),
        ({"field.width.x": 3}, "field.width"),
        ({"training.optimiser.epochs": 0}, "training.optimiser.epochs"),
        ({"training.optimiser": 3}, "training.optimiser"),
        ({"field.heads": 5}, "field"),
        ({"preset": "small"}, "preset"),
    ],
)
def test_invalid_settings_are_named(overrides, place):
    with pytest.raises(ConfigError, match=f"setting '{place}'") as caught:
        load_config("paper", overrides=overrides)
    assert caught.value.setting == place


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("viterbi", {"viterbi": {"heads": 3}}, "divisible by the 3 heads"),
        ("schema", {"schema_model": {"heads": 3}}, "divisible by the 3 heads"),
        ("schema", {"schema_model": {"width": 5, "heads": 1}}, "must be even"),
        ("schema", {"schema_model": {"width": 10**9}}, "at most 65536"),
        ("planllm", {"planllm": {"exchange_heads": 3}}, "divisible by the 3 heads"),
        ("planllm", {"planllm": {"query_heads": 3}}, "divisible by the 3 heads"),
        ("planllm", {"planllm": {"query_layers": 10**8}}, "at most 1000"),
        ("planllm", {"planllm": {"rescored": 3}}, "need a language model"),
        (
            "planllm",
            {"planllm": {"language_model": "smollm2", "query_layers": 0}},
            "query_layers is 0",
        ),
        ("p3iv", {"p3iv": {"width": 9, "heads": 2}}, "9 must be divisible by the 2 heads"),
        ("p3iv", {"p3iv": {"width": 8, "noise": 8}}, "noise 8 leaves nothing of the tokens"),
        ("p3iv", {"p3iv": {"width": 8, "noise": 3}}, "positions need an even number"),
        ("p3iv", {"p3iv": {"noise": 0}}, "set diversity to 0"),
        ("mtid", {"mtid": {"widths": [80_000]}}, "at most 65536"),
        ("pdpp", {"pdpp": {"widths": [12]}}, "multiples of 8"),
        ("pdpp", {"pdpp": {"steps": 5, "sampling": 6}}, "6 steps, more than the 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_cannot_be(method, changes, message):
    with pytest.raises(ConfigError, match=message):
        load_config("paper", method=method, overrides=changes)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("training.optimizer.epochs", "'training.optimiser.epochs'?"),
        ("training.optimizer", "'training.optimiser'?"),
        ("trainning.loss.kind", "'training.loss.kind'?"),
        ("field.widht", "'field.width'?"),
        ("training.temperature", "'training.loss.temperature'?"),
        ("kepp.fodls", "'kepp.folds'?"),  # of another method
        ("epochs", "'chain_training.optimiser.epochs' or 'classifier_training.optimiser.epochs'"),
    ],
)
def test_unknown_settings_are_named_with_similar_ones(key, meant):
    with pytest.raises(ConfigError) as caught:
        load_config("small", overrides={key: 3})
    assert f"setting '{key}': there is none of that name; did you mean {meant}" in str(caught.value)
    assert caught.value.setting == key


def test_a_preset_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "released"\n[field]\nwidth = 48\n[pkg]\nwidth = 4\n'
        '[[variant]]\ndataset = "niv"\n[variant.training.optimiser]\nbatch_size = 4\n'
    )
    config = load_config(str(path), dataset="niv", horizon=3)
    assert config.preset == "mine"
    assert (config.settings.field.width, config.settings.field.distance) == (48, "mean_square")
    optimiser = config.settings.training.optimiser
    assert (optimiser.batch_size, optimiser.learning_rate) == (4, 5e-5)
    assert load_config(str(path), method="pkg").settings.pkg.width == 4
    path.write_text('base = "paper"\n[feild]\nwide = 48\n')
    with pytest.raises(ConfigError, match=r"setting 'feild\.wide'"):
        load_config(str(path), method="pkg")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("base = 'nonsense'", "no preset 'nonsense'; shipped are .*paper, .*released"),
        ("[field", "cannot be read"),
        ("base = 3", "setting 'base': expected text"),
        ("[variant]\ndataset = 'x'", "setting 'variant"),
        ("variant = 3", "setting 'variant"),
        ("[[variant]]\ndataset = 3", "setting 'variant.0.dataset'"),
    ],
)
def test_presets_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_config(str(path))


def test_no_such_presets(tmp_path):
    with pytest.raises(ConfigError, match="no preset"):
        load_config(str(tmp_path / "absent.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="no preset"):
        load_config(str(tmp_path / "folder.toml"))
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(f'base = "{other}"')
    other.write_text(f'base = "{one}"')
    with pytest.raises(ConfigError, match=r"one\.toml' is its own base.*other\.toml"):
        load_config(str(one))


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"field": {"wide": 1, "old.part": 2}}, "this version lacks .*: 'field.wide', 'field.old"),
        ({"training": {"optimiser": 3}}, "setting 'training.optimiser': "),
    ],
)
def test_settings_of_a_run(values, setting, caplog):
    training = {"fused": True, "optimiser": {"slow": 1}}
    older = {"training": training, "field": {"width": 48, "dropout": 0.1}, "unknown": {"x": 1}}
    own = method_settings("cefito", older, place="here")
    assert own == METHODS["cefito"].settings.model_validate({"field": {"width": 48}})
    passed = "training.fused, training.optimiser.slow, field.dropout"
    assert caplog.messages == [f"here: passed over {passed}, which training alone read"]
    with pytest.raises(ConfigError, match=f"^here: {setting}"):
        method_settings("cefito", values, place="here")


def test_parameters_at_the_published_size():
    sizes = {method["name"]: method["parameters"] for method in listed_methods()}
    # 8.5, 5.55 and 42 million, classifiers of 7.1
    assert sizes["cefito"] == {"energy field": 8_523_013, "task classifier": 7_094_290}
    assert sizes["viterbi"] == {"ViterbiPlanNet": 5_549_602}
    # 42 million each; 219 million
    assert [round(size / 1e6) for size in sizes["kepp"].values()] == [42, 42]
    with weights_to_come():
        small = METHODS["cefito"].planner.sizes(load_config("small").settings, PUBLISHED)
    assert round(small["energy field"] / 1e6, 1) == 1.2  # as docs/training.md says
    assert [round(size / 1e6, 1) for size in sizes["mtid"].values()] == [7.1, 219.0]
    assert sizes["pdpp"] == {"PDPP network": 42_063_255, "task classifier": 7_094_290}
    assert all(sizes[name] is None for name in ("chain", "pkg", "nearest", "frequent"))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_declared_is_what_planners_have(name):
    method = METHODS[name]
    assert method.abilities == method.planner.abilities
    assert method.parameters == published_sizes(method)
