import copy
import pickle

import pytest
from pydantic import ValidationError

from cefito.errors import ConfigError
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.method import Method
from cefito.planners.registry import METHODS
from cefito.planners.settings import RunConfig, load_config, preset_names, run_config
from cefito.settings import Settings


def sections():
    return {
        name: field
        for method in METHODS.values()
        for name, field in method.settings.model_fields.items()
    }


def test_there_is_a_section_for_everything_that_methods_read():
    config = load_config("small")
    assert list(type(config).model_fields) == ["preset", *sections()]
    for name, field in sections().items():
        assert isinstance(getattr(config, name), field.annotation)


def test_sections_of_one_name_are_the_same_wherever_they_are_read():
    for method in METHODS.values():
        for name, field in method.settings.model_fields.items():
            assert field.annotation is sections()[name].annotation
            assert field.default == sections()[name].default


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_method(method):
    kind, config = METHODS[method].settings, load_config("small")
    settings = config.settings(kind)
    assert type(settings) is kind
    assert settings.model_dump() == {
        name: getattr(config, name).model_dump() for name in kind.model_fields
    }


@pytest.mark.parametrize("preset", preset_names())
def test_settings_come_back_from_json(preset):
    config = load_config(preset, dataset="crosstask", horizon=3)
    again = run_config(config.model_dump(mode="json"), place="here")
    assert again == config
    assert again != load_config(preset, overrides={"field.width": 36})


def test_what_is_left_out_has_its_default():
    config = run_config({"preset": "mine", "field": {"width": 48}}, place="here")
    assert config.preset == "mine"
    assert config.settings(CefitoSettings) == CefitoSettings(field={"width": 48})


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({}, "preset"),
        ({"preset": "mine", "nonsense": {}}, "nonsense"),
        ({"preset": "mine", "field": {"wide": 1}}, "field.wide"),
        ({"preset": "mine", "pdpp": {"training": {"optimiser": 3}}}, "pdpp.training.optimiser"),
    ],
)
def test_what_is_refused(values, setting):
    with pytest.raises(ConfigError, match=f"^here: setting '{setting}': ") as caught:
        run_config(values, place="here")
    assert caught.value.setting == setting


def test_settings_never_change_and_can_be_copied():
    config = load_config("small")
    assert isinstance(config, RunConfig)
    with pytest.raises(ValidationError):
        config.preset = "other"
    for twin in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert twin == config
        assert twin is not config


class Toaster(Settings):
    slices: int = 2


class ToastSettings(Settings):
    toaster: Toaster = Toaster()


def test_a_method_that_is_registered_brings_its_sections(monkeypatch):
    before = load_config("paper")
    planner = METHODS["nearest"].planner
    monkeypatch.setitem(
        METHODS, "toast", Method(name="toast", planner=planner, settings=ToastSettings)
    )
    config = load_config("paper", overrides={"toaster.slices": 4})
    assert config.settings(ToastSettings) == ToastSettings(toaster=Toaster(slices=4))
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"setting 'toaster\.slices'"):
        load_config("paper", overrides={"toaster.slices": 4})
    assert load_config("paper") == before


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("training.optimizer.epochs", "did you mean 'training.optimiser.epochs'?"),
        ("training.optimizer", "did you mean 'training.optimiser'?"),
        ("trainning.loss.kind", "did you mean 'training.loss.kind'?"),
        ("field.widht", "did you mean 'field.width'?"),
        ("training.temperature", "did you mean 'training.loss.temperature' or 'llm.temperature'?"),
        ("nonsense", "there is none of that name."),
    ],
)
def test_unknown_settings_are_named_whole_with_what_may_be_meant(key, meant):
    with pytest.raises(ConfigError) as caught:
        load_config("small", overrides={key: 3})
    assert str(caught.value).endswith(f"setting '{key}': there is none of that name; {meant}") or (
        str(caught.value).endswith(f"setting '{key}': {meant}")
    )
    assert caught.value.setting == key


def test_a_name_of_many_sections_is_not_guessed():
    with pytest.raises(ConfigError, match=r"'training\.optimiser\.epochs'.* or one of \d others\?"):
        load_config("small", overrides={"epochs": 3})
