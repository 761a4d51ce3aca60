"""Settings as a preset file with the source of each, and differences between two sets of them."""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.data.annotations import Taxonomy
from cefito.planners.methods import (
    METHODS,
    check_sections,
    find_method,
    load_config,
    method_settings,
    preset_files,
)
from cefito.runs.folder import RUN_FILE, RunInfo
from cefito.runs.hub import HUB
from cefito.settings import Settings, flattened, variant_applies

_COLUMN = 33  # where comments begin, as in the shipped presets
_COMMENT = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^#"'])*#(.*)""")  # not in quotes


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
    """Return the settings of a preset as a preset file of its own; arguments as `settings_values`.

    Each line has the comment of the file, or of the class of settings, that settled it.
    """
    values = settings_values(
        preset, dataset=dataset, horizon=horizon, overrides=overrides, method=method
    )
    comments: dict[str, str] = {}
    for name in [method] if method else METHODS:
        comments |= _comments(preset, name, dataset=dataset, horizon=horizon)
    comments |= {  # an override of a section changes all settings in it
        key: "changed here"
        for key in flattened(values)
        for given in overrides or {}
        if key == given or key.startswith(f"{given}.")
    }
    which = [f"preset {Path(preset).stem}"]
    which += [f"data set {dataset}"] * bool(dataset) + [f"T = {horizon}"] * bool(horizon)
    which += [f"of {method}"] * bool(method)
    lines = [f"# Settings: {', '.join(which)}."]
    for name, section in values.items():
        lines += _table(name, section, comments)
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


def _table(
    name: str, values: Mapping[str, Any], comments: Mapping[str, str], above: str = ""
) -> Iterator[str]:
    """Lines of a section, then of the sections within it."""
    place = f"{above}{name}"
    own = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if own:
        yield from ("", f"[{place}]")
    for key, value in own.items():
        if value is not None:  # TOML has no null; what is left out has its default
            line = f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML and JSON agree here
            comment = comments.get(f"{place}.{key}", "")
            yield f"{line:{_COLUMN - 1}} # {comment}" if comment else line
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(key, value, comments, f"{place}.")


def _comments(preset: str, method: str, *, dataset: str, horizon: int) -> dict[str, str]:
    """The comment of each setting, from the last of the preset's files and variants that has it.

    The comments of defaults are those of the classes of settings.
    """
    plain = dict(_comments_of(find_method(method).settings))
    applied: dict[str, str] = {}  # variants of all files come after all other settings
    for file in preset_files(preset, method):
        variants: list[dict[str, str]] = []
        for place, key, comment in _commented(file.text):
            if place == "variant" and not key:
                variants.append({})
            elif place.startswith("variant."):
                variants[-1][f"{place.removeprefix('variant.')}.{key}"] = comment
            elif place != "variant":
                plain[f"{place}.{key}"] = comment
        for variant, comments in zip(file.variants, variants, strict=False):
            if variant_applies(variant, dataset=dataset, horizon=horizon):
                applied |= comments
    return plain | applied


def _comments_of(kind: type[Settings], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted names of the settings of a class, and the comments in its source."""
    for base in reversed(kind.__mro__):
        if not issubclass(base, Settings) or base is Settings:
            continue
        comment = ""
        for line in inspect.getsource(base).splitlines():
            if found := re.match(r" {4}# (.*)", line):
                comment += f" {found[1]}"
                continue
            if (found := re.match(r" {4}(\w+): [^#]*(?:# (.*))?$", line)) and (
                found[1] in kind.model_fields
            ):
                yield f"{above}{found[1]}", comment.strip() or found[2] or ""
            comment = ""
    for name, field in kind.model_fields.items():
        if isinstance(inner := field.annotation, type) and issubclass(inner, Settings):
            yield from _comments_of(inner, f"{above}{name}.")


def _commented(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and comment of each line of a preset; no key at the head of a section."""
    place = ""
    for line in text.splitlines():
        if head := re.match(r"\[\[?([\w.]+)\]\]?", line):
            place = head[1]
            yield place, "", ""
        elif entry := re.match(r"(\w+)\s*=\s*(.+)$", line):
            found = _COMMENT.match(entry[2])
            yield place, entry[1], found[1].strip() if found else ""
