"""Settings as a preset file, and settings of a run that differ from its preset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cefito.errors import CefitoError
from cefito.parts.folder import RunInfo
from cefito.planners.methods import METHODS, load_config
from cefito.settings import flattened

if TYPE_CHECKING:
    from cefito.runs.run import Run


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between two sets of settings."""

    setting: str  # its dotted key
    ours: Any
    theirs: Any


def settings_values(
    preset: str,
    *,
    dataset: str = "",
    horizon: int = 0,
    overrides: Mapping[str, Any] | None = None,
    method: str = "",
) -> dict[str, Any]:
    """Return the settings of a preset as plain values by section.

    Args:
        preset: Name or file of the preset.
        dataset: Name of a data set, whose variant applies.
        horizon: T, whose variant applies.
        overrides: Dotted keys to values that differ.
        method: Name of the method; empty for all.
    """
    choices: dict[str, Any] = {"dataset": dataset, "horizon": horizon, "overrides": overrides}
    choices["shared"] = not method
    values: dict[str, Any] = {}
    for name in [method] if method else METHODS:
        values |= load_config(preset, method=name, **choices).sections
    return values


def settings_text(values: Mapping[str, Any], title: str) -> str:
    """Return a preset file of settings by section, with a title in its first line."""
    lines = [f"# Settings: {title}."]
    for name, section in values.items():
        lines += _table(name, section)
    return "\n".join(lines) + "\n"


def changes_of_preset(run: Run) -> list[SettingDifference] | None:
    """Return settings of a run that differ from its preset; None if that is not available."""
    info = RunInfo.read(run.folder)  # its steps are all that it was trained for
    try:
        preset = load_config(
            info.preset, method=info.method, dataset=run.taxonomy.dataset, horizon=info.horizon
        )
    except CefitoError:
        return None
    ours, theirs = flattened(run.config.sections), flattened(preset.sections)
    return [
        SettingDifference(setting=key, ours=ours.get(key), theirs=theirs.get(key))
        for key in dict.fromkeys([*ours, *theirs])
        if ours.get(key) != theirs.get(key)
    ]


def _table(place: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a section, then of the sections within it."""
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if plain:
        yield from ("", f"[{place}]")
    for key, value in plain.items():
        if value is not None:  # TOML has no null; what is left out has its default
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML and JSON agree here
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(f"{place}.{key}", value)
