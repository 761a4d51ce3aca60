"""Settings as a preset file that says where each comes from, and where two sets of them differ."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.data.taxonomy import Taxonomy
from cefito.errors import DataError
from cefito.planners.registry import find_method
from cefito.planners.settings import PRESETS, RunConfig, load_config, run_config
from cefito.runs.info import RUN_FILE, RunInfo
from cefito.settings import flattened

__all__ = ["Difference", "compare_settings", "run_settings", "settings_text", "settings_values"]

_COLUMN = 33  # where comments begin, as in the presets that are shipped


@dataclass(frozen=True)
class Difference:
    """A setting that two sets of them do not agree on.

    Attributes:
        setting: Its dotted key.
        ours: Its value in the first.
        theirs: Its value in the second.
    """

    setting: str
    ours: Any
    theirs: Any


def settings_values(config: RunConfig, *, method: str = "") -> dict[str, Any]:
    """Settings as plain values, section by section.

    Args:
        config: All settings.
        method: Name of a method, for the sections that it reads; empty for all sections.

    Raises:
        ConfigError: There is no such method.
    """
    values = config.model_dump(mode="json", exclude={"preset"})
    if not method:
        return values
    return {name: values[name] for name in find_method(method).settings.model_fields}


def settings_text(
    preset: str,
    *,
    dataset: str = "",
    horizon: int = 0,
    overrides: Mapping[str, Any] | None = None,
    method: str = "",
) -> str:
    """The settings that a preset comes to, as a preset file of its own.

    Each line has the comment of the file that settled it.

    Args:
        preset: As in `load_config`.
        dataset: As in `load_config`.
        horizon: As in `load_config`.
        overrides: As in `load_config`.
        method: As in `settings_values`.

    Raises:
        ConfigError: As `load_config`, or there is no such method.
    """
    config = load_config(preset, dataset=dataset, horizon=horizon, overrides=overrides)
    comments = _comments(preset, dataset, horizon)
    # what a change of a whole section contains has been changed as well
    comments |= {
        key: "changed here"
        for key in flattened(settings_values(config))
        for given in overrides or {}
        if key == given or key.startswith(f"{given}.")
    }
    which = [f"preset {config.preset}"]
    which += [f"data set {dataset}"] * bool(dataset) + [f"T = {horizon}"] * bool(horizon)
    which += [f"what {method} reads"] * bool(method)
    lines = [f"# Settings: {', '.join(which)}."]
    for name, section in settings_values(config, method=method).items():
        lines += _table(name, section, comments)
    return "\n".join(lines) + "\n"


def run_settings(folder: Path) -> tuple[dict[str, Any], RunInfo]:
    """The settings of a run, as far as its method reads them, and what it says of itself.

    Raises:
        RunError: No run.
        ConfigError: Its settings are not those of this version.
    """
    info = RunInfo.read(folder)
    config = run_config(info.config, place=str(folder / RUN_FILE))
    return settings_values(config, method=info.method), info


def compare_settings(
    run: Path, other: str, *, overrides: Mapping[str, Any] | None = None
) -> list[Difference]:
    """Where the settings of a run differ from a preset's, or from those of another run.

    Args:
        run: Run folder.
        other: Run folder, or a preset as in `load_config`; of its variants the one for the run's
            data set and horizon is taken.
        overrides: Changes of the preset, as in `load_config`.

    Raises:
        RunError: No run.
        ConfigError: No such preset, or settings that are not those of this version.
    """
    ours, info = run_settings(run)
    if (Path(other) / RUN_FILE).exists():
        theirs, _ = run_settings(Path(other))
    else:
        config = load_config(
            other, dataset=_dataset_name(run, info), horizon=info.horizon, overrides=overrides
        )
        theirs = settings_values(config, method=info.method)
    left, right = flattened(ours), flattened(theirs)
    return [
        Difference(setting=key, ours=left.get(key), theirs=right.get(key))
        for key in dict.fromkeys([*left, *right])
        if left.get(key) != right.get(key)
    ]


def _dataset_name(run: Path, info: RunInfo) -> str:
    """The name that variants of presets go by."""
    try:
        return Taxonomy.read(run / "taxonomy.json").dataset
    except DataError:  # a run of an earlier version
        return info.dataset.name


def _table(
    name: str, values: Mapping[str, Any], comments: Mapping[str, str], above: str = ""
) -> Iterator[str]:
    """The lines of a section, those of sections within it behind its own."""
    place = f"{above}{name}"
    own = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if own:
        yield from ("", f"[{place}]")
    for key, value in own.items():
        if value is not None:  # what TOML has no word for is what it is anyway
            line = f"{key} = {_value(value)}"
            comment = comments.get(f"{place}.{key}", "")
            yield f"{line:{_COLUMN - 1}} # {comment}" if comment else line
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(key, value, comments, f"{place}.")


def _value(value: Any) -> str:
    """A value as TOML writes it; of these JSON's form differs in nothing."""
    return json.dumps(value, ensure_ascii=False)


def _comments(preset: str, dataset: str, horizon: int) -> dict[str, str]:
    """The comment of each setting, from the last of the preset's files and variants that has it."""
    entries: list[tuple[bool, dict[str, str]]] = []
    name: str | None = preset
    while name is not None:
        text = _text(name)
        found: dict[str, str] = {}
        variants: list[dict[str, str]] = []
        for place, key, comment in _commented(text):
            if place == "variant" or place.startswith("variant."):
                if key == "" and place == "variant":
                    variants.append({})
                elif variants and place != "variant":
                    variants[-1][f"{place.removeprefix('variant.')}.{key}"] = comment
            elif key:
                found[f"{place}.{key}"] = comment
        values = tomllib.loads(text)
        applied: dict[str, str] = {}
        for variant, lines in zip(values.get("variant", []), variants, strict=False):
            if dataset.startswith(variant.get("dataset", "")) and (
                variant.get("horizon", horizon) == horizon
            ):
                applied |= lines
        entries += [(False, found), (True, applied)]
        name = values.get("base")
    # bases come first, and the variants of all files after all that is no variant
    return {
        key: comment
        for late in (False, True)
        for is_variant, lines in reversed(entries)
        if is_variant == late
        for key, comment in lines.items()
    }


def _text(preset: str) -> str:
    path = Path(preset) if preset.endswith(".toml") else PRESETS / f"{preset}.toml"
    return path.read_text(encoding="utf-8")


def _commented(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and comment of each line of a preset; at the head of a section no key."""
    place = ""
    for line in text.splitlines():
        if head := re.match(r"\[\[?([\w.]+)\]\]?", line):
            place = head[1]
            yield place, "", ""
        elif entry := re.match(r"(\w+)\s*=\s*(.+)$", line):
            yield place, entry[1], _behind(entry[2])


def _behind(value: str) -> str:
    """The comment behind a value."""
    for mark in re.finditer("#", value):
        try:
            tomllib.loads(f"value = {value[: mark.start()]}")
        except tomllib.TOMLDecodeError:
            continue  # a mark within a string
        return value[mark.end() :].strip()
    return ""
