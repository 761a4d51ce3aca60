"""All settings of a run: the sections that the registered methods read, from a preset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import create_model

from cefito.errors import ConfigError
from cefito.planners.registry import METHODS
from cefito.precision import Precision
from cefito.settings import Settings, changed, preset_values, setting_names, validated
from cefito.settings import preset_names as names_in

__all__ = ["RunConfig", "load_config", "precisions", "preset_names", "run_config"]

PRESETS = resources.files("cefito.planners.presets")
Sections = TypeVar("Sections", bound=Settings)


class RunConfig(Settings):
    """All settings of a run: a section for each part of each registered method.

    Sections of one name are shared by all methods that read them (the task classifier's, say).

    Attributes:
        preset: Name of the preset that they come from.
    """

    preset: str

    def settings(self, kind: type[Sections]) -> Sections:
        """The sections that a method reads.

        Args:
            kind: Class of the method's settings.
        """
        return kind(**{name: getattr(self, name) for name in kind.model_fields})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as plain values, for its class with the sections is made at run time."""
        return _unpickled, (self.model_dump(mode="json"),)


def _unpickled(values: Mapping[str, Any]) -> RunConfig:
    return run_config(values, place="settings")


def run_config(values: Mapping[str, Any], *, place: str) -> RunConfig:
    """All settings from plain values, as JSON and presets hold them.

    Args:
        values: The preset's name and values of the sections; what is left out has its default.
        place: Where they come from, for the message.

    Raises:
        ConfigError: Unknown section or setting, or a value that a setting cannot have.
    """
    return validated(_all_settings(), values, place=place)


def precisions(precision: Precision) -> dict[str, Precision]:
    """The precision of every training, by its dotted key, as `load_config` takes overrides."""
    keys = setting_names(_all_settings())
    return {key: precision for key in keys if key.endswith("training.precision")}


def _all_settings() -> type[RunConfig]:
    return _with_sections(tuple(dict.fromkeys(method.settings for method in METHODS.values())))


@cache
def _with_sections(kinds: tuple[type[Settings], ...]) -> type[RunConfig]:
    """The class that has the sections of all these settings; the same for the same ones."""
    sections: dict[str, Any] = {}
    for kind in kinds:
        for name, section in kind.model_fields.items():
            sections[name] = (section.annotation, section.default)
    return create_model("RunConfig", __base__=RunConfig, **sections)


def preset_names() -> list[str]:
    """Names of the presets shipped with the package."""
    return names_in(PRESETS)


def load_config(
    preset: str, *, dataset: str = "", horizon: int = 0, overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """Load a preset, choose its variant, apply overrides.

    Args:
        preset: Name of a shipped preset, or path of a TOML file of the same form.
        dataset: Name of the data set; a variant applies where this begins with the variant's
            `dataset`.
        horizon: T; a variant applies where this equals the variant's `horizon`, if it names one.
        overrides: Dotted keys to values, such as {"training.optimiser.epochs": 10}; strings are
            read as TOML values.

    Raises:
        ConfigError: Unknown preset, unknown or invalid key; the message names it.
    """
    if any(key.partition(".")[0] == "preset" for key in overrides or {}):
        raise ConfigError(
            "the setting 'preset' is the name of the preset itself and cannot be changed. Choose "
            "another preset instead.",
            setting="preset",
        )
    values = preset_values(preset, PRESETS, dataset=dataset, horizon=horizon)
    values = changed(values, overrides or {}) | {"preset": Path(preset).stem}
    return run_config(values, place=f"preset '{preset}' (paper.toml shows all settings)")
