"""Settings as a preset file, and differences between two sets of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.data.annotations import Taxonomy
from cefito.planners.methods import (
    METHODS,
    check_sections,
    load_config,
    method_settings,
)
from cefito.runs.folder import RUN_FILE, RunInfo
from cefito.runs.hub import HUB
from cefito.settings import flattened


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
    """Return the settings of a preset as plain values by section; of all methods by default."""
    given: dict[str, Any] = {"dataset": dataset, "horizon": horizon, "overrides": overrides}
    given["shared"] = not method
    values: dict[str, Any] = {}
    for name in [method] if method else METHODS:
        values |= load_config(preset, method=name, **given).sections
    return values


def settings_text(
    preset: str,
    *,
    dataset: str = "",
    horizon: int = 0,
    overrides: Mapping[str, Any] | None = None,
    method: str = "",
) -> str:
    """Return a preset file of the settings of a preset; arguments as `settings_values`."""
    values = settings_values(
        preset, dataset=dataset, horizon=horizon, overrides=overrides, method=method
    )
    which = [f"preset {Path(preset).stem}"]
    which += [f"data set {dataset}"] * bool(dataset) + [f"T = {horizon}"] * bool(horizon)
    which += [f"of {method}"] * bool(method)
    lines = [f"# Settings: {', '.join(which)}."]
    for name, section in values.items():
        lines += _table(name, section)
    return "\n".join(lines) + "\n"


def compare_settings(
    run: Path, other: str, *, overrides: Mapping[str, Any] | None = None
) -> list[SettingDifference]:
    """Compare the settings of a run with another run, or with a preset for its data set."""
    from cefito.runs.run import local_folder  # loads torch, which presets are shown without

    run = local_folder(run)
    info = RunInfo.read(run)
    check_sections(overrides or {}, [info.method])
    ours = _run_values(run, info)
    if zipfile.is_zipfile(other) or other.startswith(HUB) or (Path(other) / RUN_FILE).exists():
        folder = local_folder(other)
        theirs = _run_values(folder, RunInfo.read(folder))
    else:
        taxonomy = run / "taxonomy.json"
        theirs = load_config(
            other,
            method=info.method,
            dataset=Taxonomy.read(taxonomy).dataset if taxonomy.exists() else info.dataset.name,
            horizon=info.horizon,
            overrides=overrides,
        ).sections
    left, right = flattened(ours), flattened(theirs)
    return [
        SettingDifference(setting=key, ours=left.get(key), theirs=right.get(key))
        for key in dict.fromkeys([*left, *right])
        if left.get(key) != right.get(key)
    ]


def _run_values(folder: Path, info: RunInfo) -> dict[str, Any]:
    place = str(folder / RUN_FILE)
    return method_settings(info.method, info.config, place=place).model_dump(mode="json")


def _table(place: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a section, then of the sections within it."""
    own = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if own:
        yield from ("", f"[{place}]")
    for key, value in own.items():
        if value is not None:  # TOML has no null; what is left out has its default
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML and JSON agree here
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(f"{place}.{key}", value)
