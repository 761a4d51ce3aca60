import copy
import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError, field_validator

from cefito.errors import ConfigError, first_error
from cefito.settings import Settings, changed, preset_names, preset_values, read_preset, validated


class Oven(Settings):
    degrees: float = 180.0
    racks: tuple[int, ...] = (1, 3)
    doors: int = 1


class Kitchen(Settings):
    name: str
    oven: Oven = Oven()

    @field_validator("oven")
    @classmethod
    def _hot_enough(cls, oven: Oven) -> Oven:
        if oven.degrees < 50:
            raise ValueError("too cold")
        return oven


@pytest.mark.parametrize(
    ("values", "setting", "message"),
    [
        ({"nam": "x", "name": "x"}, "nam", r"none of that name; did you mean 'name'\?$"),
        ({"name": "x", "oven": {"lights": 2}}, "oven.lights", r"there is none of that name\.$"),
        ({"name": "x", "oven": {"degrese": 2}}, "oven.degrese", r"did you mean 'oven.degrees'"),
        ({}, "name", r"is missing\.$"),
        ({"name": "x", "oven": {"degrees": "hot"}}, "oven.degrees", r"\(got 'hot'\)\.$"),
        ({"name": "x", "oven": {"degrees": float("nan")}}, "oven.degrees", "finite number"),
        ({"name": "x", "oven": {"racks": [1, "two"]}}, "oven.racks.1", r"\(got 'two'\)\.$"),
        ({"name": "x", "oven": {"degrees": 10}}, "oven", "too cold"),
        ([], "", "expected an object"),
        ({"name": 1 << 20_000}, "name", "got a number of 20,001 bits"),
    ],
)
def test_values_that_a_setting_cannot_have(values, setting, message):
    place = f"here: setting '{setting}': " if setting else "here: "
    with pytest.raises(ConfigError, match=f"^{place}.*{message}") as caught:
        validated(Kitchen, values, place="here")
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *((7, 7), ("7", 7), ("2e-4", 2e-4), ("true", True), ("[1, 2]", [1, 2]), ("fast", "fast")),
        *(('"fast"', "fast"), ("{racks = 2}", {"racks": 2}), ("", ""), (None, None)),
    ],
)
def test_strings_are_read_as_toml(given, value):
    assert changed({}, {"oven.speed": given}) == {"oven": {"speed": value}}


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (
            {"a": {"b": 1, "c": [1]}, "d": 2},
            {"a.b": 3, "a.e": 4},
            {"a": {"b": 3, "c": [1], "e": 4}},
        ),
        ({}, {"a.b": 1, "a": {"b": 2, "c": 3}, "a.c": 4}, {"a": {"b": 2, "c": 4}}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
        ({"a": 3}, {"a.b": 1}, {"a": {"b": 1}}),
    ],
)
def test_changed_values_leave_the_others_and_the_originals_alone(before, changes, after):
    kept = copy.deepcopy(before)
    assert changed(before, changes) == before | after
    assert before == kept


@pytest.fixture
def presets(tmp_path):
    """A folder of presets: plain, one that builds on it, and one that builds on that."""
    (tmp_path / "plain.toml").write_text(
        'name = "plain"\n[oven]\ndegrees = 180\ndoors = 1\n'
        '[[variant]]\ndataset = "bread"\n[variant.oven]\ndegrees = 240\n'
    )
    (tmp_path / "hot.toml").write_text(
        'base = "plain"\n[oven]\ndegrees = 220\n'
        '[[variant]]\ndataset = "bread"\nhorizon = 4\n[variant.oven]\ndegrees = 250\n'
        "[[variant]]\nhorizon = 5\n[variant.oven]\ndoors = 2\n"
    )
    (tmp_path / "own.toml").write_text('base = "hot"\nname = "own"\n')
    (tmp_path / "readme.md").write_text("no preset")
    return tmp_path


def test_presets_of_a_folder(presets):
    assert preset_names(presets) == ["hot", "own", "plain"]


@pytest.mark.parametrize(
    ("preset", "dataset", "horizon", "expected"),
    [
        ("plain", "", 0, {"name": "plain", "oven": {"degrees": 180, "doors": 1}}),
        ("plain", "bread-simulated", 3, {"name": "plain", "oven": {"degrees": 240, "doors": 1}}),
        ("hot", "", 0, {"name": "plain", "oven": {"degrees": 220, "doors": 1}}),
        ("hot", "bread", 3, {"name": "plain", "oven": {"degrees": 240, "doors": 1}}),
        ("hot", "bread", 4, {"name": "plain", "oven": {"degrees": 250, "doors": 1}}),
        ("plain", "breads", 3, {"name": "plain", "oven": {"degrees": 180, "doors": 1}}),
        ("own", "white bread", 5, {"name": "own", "oven": {"degrees": 220, "doors": 2}}),
    ],
)
def test_bases_and_variants(presets, preset, dataset, horizon, expected):
    read = read_preset(preset, [presets])
    assert preset_values(read, Settings, dataset=dataset, horizon=horizon) == expected


def test_a_preset_by_its_path(presets, tmp_path):
    path = tmp_path / "elsewhere" / "mine.toml"
    path.parent.mkdir()
    path.write_text('base = "hot"\n[oven]\ndoors = 3\n')
    found = preset_values(read_preset(str(path), [presets]), Settings)
    assert found["oven"] == {"degrees": 220, "doors": 3}


@pytest.mark.parametrize("preset", ["nonsense", "gone.toml"])
def test_unknown_presets(presets, preset):
    with pytest.raises(ConfigError, match=f"preset '{preset}'; .* hot, own, plain"):
        read_preset(preset, [presets])


class Anything(Settings):
    count: Annotated[int, Field(ge=1, le=9, multiple_of=2)] = 2
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    name: Annotated[str, Field(min_length=1, max_length=3, pattern="a")] = "a"
    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = ("a",)
    kind: Literal["a", "b"] = "a"
    flag: bool = True
    inner: Oven = Oven()


@pytest.mark.parametrize("setting", Anything.model_fields)
@pytest.mark.parametrize("value", [0, -1, 10, 3, 1.5, "", "bbbb", "b", (), ("a",) * 3, {}, None])
def test_no_words_of_another_library(setting, value):
    try:
        Anything.model_validate({setting: value})
    except ValidationError as problem:
        said = first_error(problem)
        assert re.match(rf"{setting}[\w.]*: expected .* \(got .*\)$", said)
        assert not re.search("nput|valid|greater|equal", said)
