"""Base classes of settings and records, and presets: TOML files of departures from their base.

`[[variant]]` tables of a preset hold departures for a data set or horizon.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cefito.errors import (
    CefitoError,
    ConfigError,
    RunError,
    complaint,
    explained,
    first_error,
    shown,
)

LARGEST = 10**9
"""Largest whole number of a setting."""
Size = Annotated[int, Field(ge=1, le=1 << 16)]
"""Width of a layer, or another size of a network."""
Layers = Annotated[int, Field(ge=1, le=1000)]
"""Number of layers, or of networks."""
_MOST = 16 << 20  # bytes of a preset
_SUGGESTED = 4  # most similar settings that a message names


class Record(BaseModel):
    """Base of all records: immutable; unknown keys, NaN and infinity are refused.

    Records are read from JSON in pydantic's strict mode, settings in the mode of `Settings`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


AnyRecord = TypeVar("AnyRecord", bound=Record)


def read_record(
    kind: type[AnyRecord], value: Any, what: str, remedy: str, error: type[CefitoError] = RunError
) -> AnyRecord:
    """Make a record of the value of a JSON file.

    Args:
        kind: Class of the record.
        value: Parsed JSON.
        what: Begins the error: file and complaint.
        remedy: Ends it: what the user can do.
        error: Class of the error.
    """
    # as JSON: a list is a tuple, but 3.0 and "3" are not whole numbers
    return parse_record(kind, json.dumps(value), what, remedy, error)


def parse_record(
    kind: type[AnyRecord], text: str, what: str, remedy: str, error: type[CefitoError] = RunError
) -> AnyRecord:
    """Make a record of a JSON text; the other arguments are as of `read_record`."""
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as problem:
        raise error(f"{what} ({first_error(problem)}). {remedy}") from problem


class Settings(Record):
    """Base of all settings: immutable; unknown keys, NaN and infinity are refused.

    Values are not converted between kinds: `true` and 3.7 are not whole numbers, 1 is not a truth
    value, and "3" is not a number.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name in cls.model_fields:
            _check_kind(value, cls.model_fields[info.field_name].annotation)
        return value


def _check_kind(value: Any, kind: Any) -> None:
    """Refuse a value of another kind than its setting's that pydantic would convert."""
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        kinds = get_args(kind)
        inner_kinds = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
        for entry, inner in zip(value, inner_kinds, strict=False):  # pydantic checks the number
            if not isinstance(entry, str) or entry.strip().lstrip("+-").isdecimal():
                _check_kind(entry, getattr(inner, "__origin__", inner))
        return
    truth = isinstance(value, bool)
    expected = ""
    if kind is int:
        if truth or not isinstance(value, Integral):
            expected = "a whole number"
        elif abs(int(value)) > LARGEST:
            expected = f"a whole number of at most {LARGEST:,}"
    elif kind is float and (truth or not isinstance(value, Real)):
        expected = "a number"
    elif kind is bool and not truth:
        expected = "true or false"
    if expected:
        raise PydanticCustomError("kind", f"expected {expected}")


def validated(
    kind: type[AnyRecord],
    values: Mapping[str, Any],
    *,
    place: str,
    extra: Literal["ignore"] | None = None,
) -> AnyRecord:
    """Make settings of plain values; errors (ConfigError) name `place` and the dotted key.

    Args:
        kind: Class of the settings.
        values: Plain values, nested as the settings are.
        place: Where they come from; begins the message.
        extra: "ignore" passes over unknown keys; by default they are refused.
    """
    try:
        return kind.model_validate(values, extra=extra)
    except ValidationError as problem:
        first = problem.errors()[0]
        if first["type"] == "extra_forbidden":
            raise _unknown(_whole_key(first["loc"], first["input"]), [kind], place) from problem
        key = ".".join(str(level) for level in first["loc"])
        place = f"{place}: setting '{key}'" if key else place
        raise ConfigError(f"{place}: {complaint(first)}.", setting=key) from problem


def check_key(key: str, *kinds: type[Settings], place: str) -> None:
    """Refuse the dotted key of a setting or section that no class has (ConfigError).

    Args:
        key: Dotted key.
        place: Where the key comes from; begins the message.
        kinds: Classes of settings.
    """
    names = (name for kind in kinds for name in setting_names(kind))
    if not any(f"{name}.".startswith(f"{key}.") for name in names):
        raise _unknown(key, kinds, place)


def _unknown(key: str, kinds: Sequence[type[BaseModel]], place: str) -> ConfigError:
    near = _near(key, kinds) or "."
    return ConfigError(f"{place}: setting '{key}': there is none of that name{near}", setting=key)


def setting_names(kind: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted names of all settings of a class, without names of whole sections."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from (f"{name}.{inner_name}" for inner_name in setting_names(inner))
        else:
            yield name


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested values to dotted keys, the form of overrides in `changed`."""
    flat: dict[str, Any] = {}
    for key, inner in values.items():
        if isinstance(inner, Mapping):
            flat |= {f"{key}.{inner_key}": value for inner_key, value in flattened(inner).items()}
        else:
            flat[key] = inner
    return flat


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say which entries of nested values differ, by dotted key, with both values."""
    then, here = flattened(before), flattened(now)
    return ", ".join(
        f"{key} ({shown(then.get(key))} there, {shown(value)} here)"
        for key, value in {**dict.fromkeys(then), **here}.items()
        if then.get(key) != value
    )


def _whole_key(place: tuple[int | str, ...], value: Any) -> str:
    """The whole dotted key that was given, if its beginning is unknown."""
    parts = [str(level) for level in place]
    while isinstance(value, Mapping) and len(value) == 1:
        ((name, value),) = value.items()
        parts.append(str(name))
    return ".".join(parts)


def _near(key: str, kinds: Sequence[type[BaseModel]]) -> str:
    """A question for similar settings; empty if no name is similar."""
    names = list(dict.fromkeys(name for kind in kinds for name in setting_names(kind)))
    sections = {name.rpartition(".")[0] for name in names} - {""}
    last = key.rpartition(".")[2]
    similar = (
        get_close_matches(key, [*names, *sorted(sections)], n=1, cutoff=0.93)
        # the right name in a wrong section or in none, else one that is spelled alike
        or [name for name in names if name.endswith(f".{last}")]
        or [  # not one of which the section alone is spelled alike
            name
            for name in get_close_matches(key, [*names, *sorted(sections)], n=1, cutoff=0.75)
            if get_close_matches(last, [name.rpartition(".")[2]], cutoff=0.7)
        ]
    )
    if not similar:
        return ""
    left = max(0, len(similar) - _SUGGESTED)
    more = f", or one of {left} others" * (left > 1)
    named = similar[: -left if left > 1 else None]
    return "; did you mean " + " or ".join(f"'{name}'" for name in named) + more + "?"


def changed(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with those of dotted keys replaced; strings are read as TOML values."""
    result = dict(values)
    for key, override in overrides.items():
        result = _merged(result, _nested(key, parsed_value(override)))
    return result


class _Variant(BaseModel, extra="allow"):
    dataset: str = ""


class _Head(Settings):
    """Entries of a preset besides settings."""

    base: str | None = None
    variant: list[_Variant] = []


@dataclass(frozen=True)
class PresetFile:
    """One file of a preset."""

    text: str
    base: str | None  # preset that it builds on, if any
    values: dict[str, Any]
    variants: list[dict[str, Any]]  # departures for a data set and horizon


def preset_names(folder: Traversable) -> list[str]:
    """Return the names of the presets in a folder."""
    files = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def read_preset(
    preset: str, folders: Sequence[Traversable], above: tuple[str, ...] = ()
) -> list[PresetFile]:
    """Read the files of a preset (name or path) and of its bases, bases first.

    Args:
        preset: Name, or path of a TOML file.
        folders: Folders of presets; the first names the bases, files of the same names in others
            add sections.
        above: Names of the presets that this one is a base of.
    """
    if preset in above:
        raise ConfigError(f"preset '{preset}' is its own base, by way of {', '.join(above)}.")
    is_path = preset.endswith(".toml")
    paths = [Path(preset)] if is_path else [folder / f"{preset}.toml" for folder in folders]
    if not paths[0].is_file():
        shipped = ", ".join(preset_names(folders[0]))
        raise ConfigError(f"no preset '{preset}'; shipped are {shipped}. Or give a .toml file.")
    files = [_read(path, preset) for path in paths if path is paths[0] or path.is_file()]
    base = files[0].base
    return files if base is None else read_preset(base, folders, (*above, preset)) + files


def preset_values(
    files: Sequence[PresetFile], kind: type[Settings], *, dataset: str = "", horizon: int = 0
) -> dict[str, Any]:
    """Merge a class's defaults, the values of preset files, and those of variants that apply.

    Args:
        files: Files of the preset, bases first.
        kind: Class of the settings.
        dataset: Name of the data set, for variants.
        horizon: T, for variants.
    """
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if not field.is_required():
            default = field.get_default(call_default_factory=True)
            values[name] = default.model_dump() if isinstance(default, BaseModel) else default
    for file in files:
        values = _merged(values, file.values)
    for file in files:
        for variant in file.variants:
            if variant_applies(variant, dataset=dataset, horizon=horizon):
                variant_values = {
                    k: setting for k, setting in variant.items() if k not in ("dataset", "horizon")
                }
                values = _merged(values, variant_values)
    return values


def variant_applies(variant: Mapping[str, Any], *, dataset: str, horizon: int) -> bool:
    """Return whether a variant is for a data set, as in `is_called`, and a horizon.

    Args:
        variant: Entries of the variant.
        dataset: Name of the data set.
        horizon: T.
    """
    fits = "dataset" not in variant or is_called(dataset, variant["dataset"])
    return fits and variant.get("horizon", horizon) == horizon


def is_called(dataset: str, name: str) -> bool:
    """Return whether a data set has a published name, alone or with more behind the word.

    "coin-simulated" is called "coin", and "coins" is not.
    """
    return dataset.startswith(name) and not dataset[len(name) : len(name) + 1].isalnum()


def _read(path: Traversable, preset: str) -> PresetFile:
    place = f"preset '{preset}'"
    if isinstance(path, Path) and path.stat().st_size > _MOST:
        raise ConfigError(f"{place}: has more than {_MOST >> 20} MiB. Give a .toml file.")
    # ValueError: no TOML, not UTF-8, a number of thousands of digits
    kinds = ValueError, OSError, RecursionError
    with explained(place, "cannot be read", "Correct it.", *kinds, error=ConfigError):
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    parts = {str(name): values.pop(name) for name in ("base", "variant") if name in values}
    base = validated(_Head, parts, place=place).base
    return PresetFile(text=text, base=base, values=values, variants=parts.get("variant", []))


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, inner in over.items():
        old = result.get(key)
        if isinstance(inner, Mapping) and isinstance(old, Mapping):
            inner = _merged(old, inner)
        result[key] = inner
    return result


def _nested(key: str, value: Any) -> dict[str, Any]:
    for level in reversed(key.split(".")):
        value = {level: value}
    return dict(value)


def parsed_value(value: Any) -> Any:
    """Return what a text says in TOML, as a number or true; other texts and values as they are."""
    if not isinstance(value, str):
        return value
    try:
        parsed = tomllib.loads(f"value = {value}")
        return parsed["value"] if len(parsed) == 1 else value  # else it went on behind the value
    except (ValueError, RecursionError):  # ValueError: no TOML, a number of thousands of digits
        return value
