"""The base of all settings, and presets: TOML files that say only where they leave their base.

`[[variant]]` tables of a preset hold departures for one data set and horizon.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cefito.errors import ConfigError

__all__ = [
    "Frozen",
    "changed",
    "flattened",
    "preset_names",
    "preset_values",
    "setting_names",
    "validated",
]

_SUGGESTED = 4  # most settings that are named where one is unknown


class Frozen(BaseModel):
    """Base of all settings: immutable; unknown keys and numbers that are none are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Settings = TypeVar("Settings", bound=Frozen)


def validated(kind: type[Settings], values: Mapping[str, Any], *, place: str) -> Settings:
    """Settings of some kind from plain values.

    Args:
        kind: Class of the settings.
        values: Values by name.
        place: Where they come from, for the message.

    Raises:
        ConfigError: An unknown key or a value that a setting cannot have; `setting` is its dotted
            key.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        if first["type"] == "extra_forbidden":
            key = _whole_key(first["loc"], first["input"])
            message = (
                f"{place}: setting '{key}': there is none of that name{_near(key, kind) or '.'}"
            )
            raise ConfigError(message, setting=key) from problem
        key = ".".join(str(part) for part in first["loc"]) or "the whole"
        got = "" if first["type"] == "missing" else f" (got {first['input']!r})"
        message = f"{place}: setting '{key}': {first['msg']}{got}."
        raise ConfigError(message, setting=key) from problem


def setting_names(kind: type[BaseModel]) -> Iterator[str]:
    """Dotted names of all settings of some kind, without those of whole sections."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from (f"{name}.{rest}" for rest in setting_names(inner))
        else:
            yield name


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values by their dotted keys: what `changed` takes."""
    flat: dict[str, Any] = {}
    for key, part in values.items():
        if isinstance(part, Mapping):
            flat |= {f"{key}.{rest}": value for rest, value in flattened(part).items()}
        else:
            flat[key] = part
    return flat


def _whole_key(place: tuple[int | str, ...], value: Any) -> str:
    """The dotted key that was given where only its beginning is unknown."""
    parts = [str(part) for part in place]
    while isinstance(value, Mapping) and len(value) == 1:
        ((name, value),) = value.items()
        parts.append(str(name))
    return ".".join(parts)


def _near(key: str, kind: type[BaseModel]) -> str:
    """A question for the settings that may have been meant; empty where none is near."""
    names = list(setting_names(kind))
    sections = {name.rpartition(".")[0] for name in names} - {""}
    last = key.rpartition(".")[2]
    found = (
        get_close_matches(key, [*names, *sorted(sections)], n=1, cutoff=0.93)
        # the right name in a wrong section or in none, else one that is spelled alike
        or [name for name in names if name.endswith(f".{last}")]
        or get_close_matches(key, [*names, *sorted(sections)], n=1, cutoff=0.75)
    )
    if not found:
        return ""
    more = "" if len(found) <= _SUGGESTED else f", or one of {len(found) - _SUGGESTED} others"
    return "; did you mean " + " or ".join(f"'{name}'" for name in found[:_SUGGESTED]) + more + "?"


def changed(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with some of them replaced.

    Args:
        values: Values to begin with.
        overrides: Dotted keys to values, such as {"training.optimiser.epochs": 10}; strings are
            read as TOML values.
    """
    result = dict(values)
    for key, part in overrides.items():
        result = _merged(result, _nested(key, _parsed(part)))
    return result


def preset_names(folder: Traversable) -> list[str]:
    """Names of the presets in a folder."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def preset_values(
    preset: str, folder: Traversable, *, dataset: str = "", horizon: int = 0
) -> dict[str, Any]:
    """The values of a preset with those of its bases and of the variants that apply.

    Args:
        preset: Name of a preset in `folder`, or path of a TOML file of the same form.
        folder: Where named presets lie.
        dataset: Name of the data set; a variant applies where this begins with the variant's
            `dataset`.
        horizon: T; a variant applies where this equals the variant's `horizon`, if it names one.

    Raises:
        ConfigError: Unknown, unreadable or malformed preset.
    """
    values, variants = _read(preset, folder)
    for variant in variants:
        rest = {key: part for key, part in variant.items() if key not in ("dataset", "horizon")}
        fits = dataset.startswith(variant.get("dataset", ""))
        if fits and variant.get("horizon", horizon) == horizon:
            values = _merged(values, rest)
    return values


def _read(
    preset: str, folder: Traversable, above: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings with their bases merged in, and the variants, bases' first.

    `above` are the presets that build on this one.
    """
    if preset in above:
        raise ConfigError(f"preset '{preset}' is its own base, by way of {', '.join(above)}.")
    path: Traversable = Path(preset) if preset.endswith(".toml") else folder / f"{preset}.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise ConfigError(
            f"no preset '{preset}'; shipped are {', '.join(preset_names(folder))}, or give the "
            "path of a .toml file."
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise ConfigError(f"preset '{preset}': cannot be read ({problem}).") from problem
    base, variants = values.pop("base", None), values.pop("variant", [])
    if not isinstance(variants, list) or not all(
        isinstance(variant, dict) and isinstance(variant.get("dataset", ""), str)
        for variant in variants
    ):
        raise ConfigError(
            f"preset '{preset}': variants must be tables [[variant]], their data set a name."
        )
    if base is None:
        return values, variants
    if not isinstance(base, str):
        raise ConfigError(f"preset '{preset}': base {base!r} must be the name of a preset.")
    under, earlier = _read(base, folder, (*above, preset))
    return _merged(under, values), earlier + variants


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, part in over.items():
        old = result.get(key)
        if isinstance(part, Mapping) and isinstance(old, Mapping):
            part = _merged(old, part)
        result[key] = part
    return result


def _nested(key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
