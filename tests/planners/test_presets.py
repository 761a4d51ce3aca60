import tomllib
from importlib import resources
from typing import Any

import pytest
from pydantic import BaseModel

from cefito.errors import ConfigError
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.settings import load_config, preset_names, run_config

PRESETS = preset_names()


def raw(preset: str) -> dict[str, Any]:
    return tomllib.loads(
        (resources.files("cefito.planners.presets") / f"{preset}.toml").read_text(encoding="utf-8")
    )


def keys(value: dict[str, Any], above: str = "") -> list[str]:
    """Dotted keys of all leaves."""
    return [
        key
        for name, part in value.items()
        for key in (keys(part, f"{above}{name}.") if isinstance(part, dict) else [above + name])
    ]


def setting(config: BaseModel, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def test_presets_that_are_shipped():
    assert {"paper", "released", "small", "quickstart"} <= set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_for_every_data_set(preset):
    for dataset in ("", "crosstask", "coin", "niv", "mine"):
        for horizon in (3, 4, 5, 6):
            assert load_config(preset, dataset=dataset, horizon=horizon).preset == preset


@pytest.mark.parametrize("preset", PRESETS)
def test_every_key_of_a_preset_is_a_setting(preset):
    content = raw(preset)
    parts = content.pop("variant", [])
    base = content.pop("base", None)
    assert (base is None) == (preset == "paper")
    for part in [
        content,
        *(
            {key: value for key, value in variant.items() if key not in ("dataset", "horizon")}
            for variant in parts
        ),
    ]:
        for key in keys(part):
            setting(run_config({"preset": preset}, place="defaults"), key)
    for key in keys(content):
        value = setting(load_config(preset), key)
        stated = content
        for part in key.split("."):
            stated = stated[part]
        assert value == (tuple(stated) if isinstance(stated, list) else stated)


def test_defaults_are_the_papers():
    paper, defaults = load_config("paper"), run_config({"preset": "paper"}, place="defaults")
    assert paper.model_dump() == defaults.model_dump()


def test_values_of_the_paper():
    paper = load_config("paper", dataset="crosstask", horizon=3)
    assert (paper.field.width, paper.field.depth, paper.field.heads, paper.field.mlp_ratio) == (
        384,
        4,
        6,
        4,
    )
    assert paper.field.distance == "l2"
    assert (paper.training.negatives.count, paper.training.negatives.hard) == (50, 0.8)
    assert paper.training.negatives.permuted == paper.training.negatives.edited == 0
    assert paper.training.loss.kind == "triplet"
    assert paper.training.loss.reduction == "mean"
    margin = paper.training.loss.margin
    assert (margin.low, margin.high, margin.order) == (0.01, 0.1, 0)
    optimiser = paper.training.optimiser
    assert (optimiser.learning_rate, optimiser.weight_decay, optimiser.epochs) == (5e-4, 1e-3, 200)
    assert (paper.training.auxiliary.goal, paper.training.auxiliary.negatives) == ("true", False)
    classifier = paper.classifier_training.optimiser
    assert (classifier.learning_rate, classifier.weight_decay) == (1e-4, 0)
    assert paper.training.augmentation.noise == 0
    assert paper.search.actions == "training"


def test_released_values_everywhere():
    released = load_config("released")
    assert released.field.distance == "mean_square"
    assert released.training.loss.reduction == "violating"
    auxiliary = released.training.auxiliary
    assert (auxiliary.states, auxiliary.goal) == ("latents", "predicted")
    assert (auxiliary.negatives, auxiliary.weight) == (True, 1)
    assert released.field.init == "torch"
    assert released.classifier.init == "normal"
    ema = released.training.ema
    assert (ema.decay, ema.every, ema.warmup) == (0.995, 10, 400)
    classifier = released.classifier_training.optimiser
    assert (classifier.learning_rate, classifier.weight_decay) == (3e-4, 0.01)
    assert released.search.actions == "taxonomy"
    negatives = load_config("paper").training.negatives
    assert released.training.negatives == negatives.model_copy(update={"exact": False})
    assert load_config("paper").training.auxiliary.states == "states"
    for preset in preset_names():
        assert load_config(preset).field.observation_epsilon == 1e-5


def test_small_diffusion_has_no_noise_at_a_horizon_of_four():
    for dataset in ("", "captaincook4d", "crosstask", "coin", "niv"):
        for horizon, noise in ((3, 0.3), (4, 0.0), (5, 0.3)):
            config = load_config("small", dataset=dataset, horizon=horizon).pdpp
            assert config.widths == (256,)
            assert config.training.optimiser.learning_rate == 2e-3
            assert config.training.augmentation.noise == noise


CROSSTASK_3 = {
    "training.loss.margin.low": 0.05,
    "training.loss.margin.high": 0.15,
    "training.loss.margin.order": 0.7,
    "training.negatives.permuted": 0.08,
    "training.augmentation.noise": 0.3,
    "training.augmentation.scale": "batch",
    "training.optimiser.weight_decay": 0.075,
    "training.optimiser.batch_size": 128,
    "training.ema.decay": 0.99738562,
    "training.ema.every": 20,
    "training.ema.warmup": 1275,
}
CROSSTASK_4 = {"training.optimiser.learning_rate": 8e-5, "training.auxiliary.weight": 0.5}
COIN = {"training.optimiser.batch_size": 256, "training.optimiser.learning_rate": 5e-4}
NIV = {"training.optimiser.batch_size": 32, "training.optimiser.learning_rate": 5e-5}


@pytest.mark.parametrize(
    ("dataset", "horizon", "departures"),
    [
        ("crosstask", 3, CROSSTASK_3),
        ("crosstask-simulated", 3, CROSSTASK_3),
        ("crosstask", 4, CROSSTASK_4),
        ("crosstask", 5, {}),
        ("coin", 3, COIN),
        ("coin", 6, COIN),
        ("niv", 4, NIV),
        ("mine", 3, {}),
        ("my-coin", 3, {}),
    ],
)
def test_released_variants(dataset, horizon, departures):
    released, plain = (
        load_config("released", dataset=dataset, horizon=horizon),
        load_config("released"),
    )
    for key, value in departures.items():
        assert setting(released, key) == value, key
    # other methods have departures of their own
    same = [
        key
        for key in keys(plain.model_dump())
        if key not in departures and key.partition(".")[0] in CefitoSettings.model_fields
    ]
    assert [setting(released, key) for key in same] == [setting(plain, key) for key in same]


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("training.optimiser.epochs", 7, 7),
        ("training.optimiser.epochs", "7", 7),
        ("training.optimiser.learning_rate", "2e-4", 2e-4),
        ("field.distance", "mean_square", "mean_square"),
        ("field.distance", '"mean_square"', "mean_square"),
        ("field.centre", "true", True),
        ("classifier.hidden", "[4, 5, 6]", (4, 5, 6)),
        ("training.loss.margin.order", 1, 1.0),
    ],
)
def test_overrides(key, given, value):
    config, plain = load_config("paper", overrides={key: given}), load_config("paper")
    assert setting(config, key) == value
    assert [
        name for name in keys(config.model_dump()) if setting(config, name) != setting(plain, name)
    ] == [key]


def test_overrides_beat_variants_and_later_ones_beat_earlier():
    config = load_config(
        "released",
        dataset="niv",
        horizon=3,
        overrides={"training.optimiser.batch_size": 8, "training.optimiser": {"batch_size": 9}},
    )
    assert config.training.optimiser.batch_size == 9
    assert config.training.optimiser.learning_rate == 5e-5


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        ({"training.optimiser.epoch": 3}, "training.optimiser.epoch"),
        ({"nonsense": 3}, "nonsense"),
        ({"field.width.x": 3}, "field.width"),
        ({"training.optimiser.epochs": "many"}, "training.optimiser.epochs"),
        ({"training.optimiser.epochs": 0}, "training.optimiser.epochs"),
        ({"training.optimiser": 3}, "training.optimiser"),
        ({"training.loss.kind": "hinge"}, "training.loss.kind"),
        ({"field.heads": 5}, "field"),
        ({"training.negatives.edited": 2}, "training.negatives.edited"),
    ],
)
def test_settings_that_cannot_be_are_named(overrides, place):
    with pytest.raises(
        ConfigError, match=rf"preset 'paper' \(paper.toml shows all settings\): setting '{place}': "
    ) as caught:
        load_config("paper", overrides=overrides)
    assert caught.value.setting == place


def test_presets_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "released"\n[field]\nwidth = 48\n'
        '[[variant]]\ndataset = "niv"\n[variant.training.optimiser]\nbatch_size = 4\n'
    )
    config = load_config(str(path), dataset="niv", horizon=3)
    assert config.preset == "mine"
    assert (config.field.width, config.field.distance) == (48, "mean_square")
    assert (config.training.optimiser.batch_size, config.training.optimiser.learning_rate) == (
        4,
        5e-5,
    )
    path.write_text('base = "paper"\n[field]\nwide = 48\n')
    with pytest.raises(ConfigError, match=r"setting 'field\.wide'"):
        load_config(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("base = 'nonsense'", "no preset 'nonsense'; shipped are .*paper"),
        ("[field", "cannot be read"),
        ("base = 3", "base 3 must be the name of a preset"),
        ("[variant]\ndataset = 'x'", r"must be tables \[\[variant\]\]"),
        ("variant = 3", r"must be tables \[\[variant\]\]"),
        ("[[variant]]\ndataset = 3", "their data set a name"),
    ],
)
def test_presets_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_config(str(path))


def test_bases_that_go_round(tmp_path):
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(f'base = "{other}"')
    other.write_text(f'base = "{one}"')
    with pytest.raises(ConfigError, match=r"one\.toml' is its own base, by way of .*other\.toml"):
        load_config(str(one))


def test_unknown_presets(tmp_path):
    with pytest.raises(ConfigError, match=r"no preset 'nonsense'; shipped are .*paper, .*released"):
        load_config("nonsense")
    with pytest.raises(ConfigError, match="no preset"):
        load_config(str(tmp_path / "absent.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "folder.toml"))
