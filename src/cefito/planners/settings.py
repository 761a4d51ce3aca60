"""Settings of a run: the sections that its method reads, from a preset.

A preset is a folder of files of one name: `planners/presets` says which presets there are and what
each builds on, and the sections are in `presets` beside the code that reads them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError
from cefito.planners.registry import METHODS, find_method
from cefito.runtime import Precision
from cefito.settings import (
    PresetFile,
    Settings,
    changed,
    check_key,
    preset_values,
    read_preset,
    setting_names,
    validated,
)
from cefito.settings import preset_names as names_in

__all__ = [
    "RunConfig",
    "check_sections",
    "load_config",
    "method_settings",
    "precisions",
    "preset_files",
    "preset_names",
]

PRESETS = resources.files("cefito.planners.presets")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run."""

    method: str
    preset: str
    settings: Any  # the sections that the method reads, of its class of settings

    @property
    def sections(self) -> dict[str, Any]:
        """The settings as plain values for JSON, section by section."""
        sections: dict[str, Any] = self.settings.model_dump(mode="json")
        return sections


def preset_names() -> list[str]:
    """Return the names of the presets shipped with the package."""
    return names_in(PRESETS)


def preset_files(preset: str, method: str) -> list[PresetFile]:
    """Read the files that a method's settings come from, bases first."""
    folders: list[Traversable] = [PRESETS]
    for kind in find_method(method).settings.__mro__:
        package = getattr(sys.modules[kind.__module__], "__package__", None)
        if issubclass(kind, Settings) and package:
            folders.append(resources.files(package) / "presets")
    return read_preset(preset, list(dict.fromkeys(folders)))


def load_config(
    preset: str,
    *,
    method: str = "cefito",
    dataset: str = "",
    horizon: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Load a method's settings from a preset, choose its variant, apply overrides.

    Sections and overrides for other methods are ignored.

    Args:
        preset: Name of a shipped preset, or path of a TOML file of the same form.
        method: Name of the method.
        dataset: Name of the data set; a variant applies if this begins with the variant's
            `dataset`.
        horizon: T; a variant applies if this equals the variant's `horizon`, if it names one.
        overrides: Dotted keys to values, such as {"training.optimiser.epochs": 10}; strings are
            read as TOML values.

    Raises:
        ConfigError: No such method or preset, or an unknown key or invalid value; the message names
            it.
    """
    place = f"preset '{preset}' (cefito config show {preset} shows all settings)"
    kind = find_method(method).settings
    overrides = overrides or {}
    for key in overrides:
        section = key.partition(".")[0]
        if section == "preset":
            raise ConfigError(
                "the setting 'preset' is the name of the preset itself and cannot be changed. "
                "Choose another preset instead.",
                setting="preset",
            )
        if section not in kind.model_fields and (other := _reader(section)) is not None:
            check_key(key, other, place=place)
    values = preset_values(preset_files(preset, method), dataset=dataset, horizon=horizon)
    values = changed(values, overrides)
    own = {
        name: part
        for name, part in values.items()
        if name in kind.model_fields or _reader(name) is None
    }
    return RunConfig(method, Path(preset).stem, validated(kind, own, place=place))


def check_sections(keys: Iterable[str], methods: Iterable[str]) -> None:
    """Refuse dotted keys of sections that other methods read, but none of these (ConfigError)."""
    names = list(dict.fromkeys(methods))
    read = dict.fromkeys(part for name in names for part in find_method(name).settings.model_fields)
    for key in keys:
        section = key.partition(".")[0]
        if section not in read and _reader(section) is not None:
            remedy = f"Change one of {', '.join(read)}" if read else "Leave it out"
            raise ConfigError(
                f"setting '{key}': is not read by {' or '.join(names)}. {remedy}.", setting=key
            )


def method_settings(method: str, values: Mapping[str, Any], *, place: str) -> Settings:
    """Validate the settings of a finished run; sections that its method lacks are ignored."""
    kind = find_method(method).settings
    if ignored := [name for name in values if name not in kind.model_fields]:
        logger.info("%s: ignored sections %s, which %s lacks", place, ", ".join(ignored), method)
    own = {name: part for name, part in values.items() if name in kind.model_fields}
    return validated(kind, own, place=place)


def precisions(precision: Precision, method: str) -> dict[str, Precision]:
    """Return the precision of every training of a method by dotted key, as overrides."""
    keys = setting_names(find_method(method).settings)
    return {key: precision for key in keys if key.endswith("training.precision")}


def _reader(section: str) -> type[Settings] | None:
    """The settings class of a method with a section; None if no method has it."""
    kinds = (method.settings for method in METHODS.values())
    return next((kind for kind in kinds if section in kind.model_fields), None)
