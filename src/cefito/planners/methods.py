"""Methods: what each declares, all of them by their names, and their settings from presets.

Each method's folder declares its own in a module `method`: a planner with its settings, what is
said of it, and its rows in tables. To add a method, enter it in `METHODS`; another package has an
entry point of the group `cefito.planners` (`cefito new-planner` writes one).

A preset is a folder of files of one name: `planners/presets` says which presets there are and what
each builds on, and the sections are in `presets` beside the code that reads them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from importlib.metadata import EntryPoint
from importlib.resources.abc import Traversable
from operator import not_
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, create_model

from cefito.errors import ConfigError
from cefito.planners.base import Abilities, Planner, Shape
from cefito.planners.shared.settings import CoverageConfig
from cefito.plugins import Registry
from cefito.recognition.methods import RECOGNISERS
from cefito.runtime import Precision, weights_to_come
from cefito.search.settings import search_settings
from cefito.settings import (
    PresetFile,
    Settings,
    changed,
    check_key,
    flattened,
    preset_values,
    read_preset,
    setting_names,
    validated,
)
from cefito.settings import preset_names as names_in
from cefito.verification.settings import VerifierConfig

CLASSIFIER = "task classifier"
DESCRIPTIONS = "descriptions of states"
GRAPH = "graph of training windows"
SERVER = "server of a language model"
TEXT = "text vectors of actions"

TRUE_TASK, STORED_TASK = "-true-task", "-stored-task"
"""Suffixes of names of variants that are given the true task, or the one stored in the data set."""


class NoSettings(Settings):
    """Settings of methods that have none."""


@dataclass(frozen=True)
class Paper:
    """Publication of a method."""

    title: str
    venue: str = ""  # conference and year; empty if unknown
    arxiv: str = ""  # number on arXiv; empty if unknown

    @property
    def place(self) -> str:
        """Venue and number, as far as they are known."""
        return ", ".join(filter(None, (self.venue, self.arxiv and f"arXiv {self.arxiv}")))

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; null if unknown."""
        return {name: value or None for name, value in asdict(self).items()}


class PlannerVariant(Settings):
    """One row of a table: a method, how it is trained and how it plans."""

    name: str
    title: str
    own_name: bool = Field(default=False, exclude=True)  # the planner names itself
    method: str
    settings: Mapping[str, Any] = {}  # changes in training, dotted keys
    search: Mapping[str, Any] = {}  # changes of the search in planning
    exhaustive: bool = False  # so costly that long horizons are scored on a sample
    true_task: bool = False
    # given the task that a classifier of others predicted
    stored_task: bool = Field(default=False, exclude_if=not_)
    ablation: bool = Field(default=False, exclude=True)  # "all" leaves it out

    @property
    def given(self) -> dict[str, bool]:
        """What the planner is given, by fields of `Given`."""
        return {"oracle_task": self.true_task, "stored_task": self.stored_task}

    def apply(self, planner: Planner) -> Planner:
        """Return a planner that searches as the row says."""
        if not self.search:
            return planner
        trained = planner.describe().search
        if trained is None:
            raise ConfigError(f"'{self.name}': {planner.name} has no search to choose.")
        return planner.with_search(search_settings(trained, **self.search))

    def with_task(self, end: str) -> PlannerVariant:
        """Return the same variant with a task given, by the end of its name."""
        field = end[1:].replace("-", "_")
        title = f"{self.title}, {field.replace('_', ' ')}"
        update = {"name": self.name + end, "title": title, "own_name": False, field: True}
        return self.model_copy(update=update)


def rows(
    method: str,
    title: str,
    ablations: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
    *,
    own_name: bool = False,
) -> tuple[PlannerVariant, ...]:
    """Return the row of a method as its settings say, and those that show the worth of its parts.

    Args:
        method: Name of the method, and of its row.
        title: Title of its row.
        ablations: For the end of a row's name what its title says and the settings that change.
        own_name: Whether tables have the planner's name instead of the title.
    """
    shared: dict[str, Any] = {"method": method, "own_name": own_name}
    parts = [
        PlannerVariant(
            name=f"{method}-{ending}",
            title=f"{title} ({said})",
            settings=settings,
            ablation=True,
            **shared,
        )
        for ending, (said, settings) in (ablations or {}).items()
    ]
    return PlannerVariant(name=method, title=title, **shared), *parts


class _PlannerClass:
    """The class of a method's planners, or its place "module:Name", imported when first used.

    So settings are read and validated without the networks.
    """

    def __get__(self, method: Method | None, kind: type[Method]) -> type[Planner]:
        if method is None:
            raise AttributeError("planner")  # it has no default
        attributes = vars(method)
        if isinstance(attributes["planner"], str):
            attributes["planner"] = EntryPoint("planner", attributes["planner"], "").load()
        return cast("type[Planner]", attributes["planner"])

    def __set__(self, method: Method, planner: type[Planner] | str) -> None:
        vars(method)["planner"] = planner


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to plan."""

    name: str
    planner: _PlannerClass = _PlannerClass()  # a class of planners, or its place "module:Name"
    settings: type[Settings] = NoSettings  # each field is a section of the presets
    title: str = ""  # for people; its name if empty
    line: str = ""
    paper: Paper | None = None  # None if unpublished
    # of its planners, as their class has them; None: a list imports the class to know and count
    abilities: Abilities | None = None
    # of each network at the published size (`PUBLISHED`), if its paper has one
    parameters: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # beside windows and its own networks
    uses: tuple[str, ...] = ()  # used if available, replaced otherwise
    changes: Mapping[str, Any] = field(default_factory=dict)  # of presets, by dotted keys
    variants: tuple[PlannerVariant, ...] = ()


def _fault(name: str, entry: Any) -> str:
    """Return what is wrong with a method of another package."""
    if not (isinstance(entry, Method) and entry.name == name):
        return f"its entry point is not a Method of the name '{name}'"
    if not (isinstance(entry.settings, type) and issubclass(entry.settings, Settings)):
        return "its settings are not a class of Settings"
    kind = entry.planner
    if not (isinstance(getattr(kind, "abilities", None), Abilities)):
        return "its planner is not a Planner; derive it from BasePlanner"
    return ""


METHODS: Registry[Method] = Registry(
    "cefito.planners",
    "method",
    {
        name: f"cefito.planners.{place}"
        for name, place in {
            "cefito": "cefito.method:CEFITO",
            "chain": "chain.method:CHAIN",
            "cefito+chain": "cefito.method:CEFITO_CHAIN",
            "any-length": "any_length.method:ANY_LENGTH",
            "viterbi": "viterbi.method:VITERBI",
            "pdpp": "diffusion.method:PDPP",
            "mtid": "mtid.method:MTID",
            "kepp": "kepp.method:KEPP",
            "schema": "schema.method:SCHEMA",
            "planllm": "planllm.method:PLANLLM",
            "p3iv": "p3iv.method:P3IV",
            "pkg": "pkg.method:PKG",
            "pkg-beam": "pkg.method:PKG_BEAM",
            "llm": "language_model.method:LLM",
            "nearest": "simple.method:NEAREST",
            "frequent": "simple.method:FREQUENT",
        }.items()
    },
    _fault,
)
"""Methods by name, in the order of tables; the code of a method is imported when first used."""


def find_method(name: str) -> Method:
    """Return a method by its name."""
    return METHODS.named(name)


def methods_with(ability: str) -> str:
    """Return the names of the methods with an ability (a field of `Abilities`), for a message."""
    names = (name for name, method in METHODS.items() if getattr(method.planner.abilities, ability))
    return ", ".join(names) or "none"


PRESETS = resources.files("cefito.planners") / "presets"
_CHOICE = "recogniser.method"  # setting
_OF_TRAINING = re.compile(r"(^|[._])training\.|dropout$")  # settings that planning never reads

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run."""

    method: str
    preset: str
    settings: Any  # sections that the method reads, of its class of settings
    parts: Mapping[str, Any] = field(default_factory=dict)  # beside the planner, by section

    @property
    def sections(self) -> dict[str, Any]:
        """The settings as plain values for JSON, section by section."""
        sections: dict[str, Any] = self.settings.model_dump(mode="json")
        return sections | {name: part.model_dump(mode="json") for name, part in self.parts.items()}


def _parts(method: Method, recogniser: str) -> dict[str, type[Settings]]:
    """Return the sections of what a method's runs have beside their planner."""
    abilities, parts = method.abilities or method.planner.abilities, dict[str, type[Settings]]()
    if abilities.any_length:
        parts["recogniser"] = RECOGNISERS.named(recogniser, _CHOICE).settings
        parts["verifier"] = VerifierConfig
    if abilities.probabilities:
        parts["coverage"] = CoverageConfig
    return {name: kind for name, kind in parts.items() if name not in method.settings.model_fields}


def default_parts(name: str) -> dict[str, Any]:
    """Return the default settings of what a method's runs have beside their planner, by section."""
    parts = _parts(find_method(name), "segmental")
    return {section: kind().model_dump(mode="json") for section, kind in parts.items()}


def run_settings(name: str, recogniser: str = "segmental") -> type[Settings]:
    """Return the class of all settings of a run: its method's, and those of its other parts."""
    method = find_method(name)
    return _extended(method.settings, *_parts(method, recogniser).items())


def _all_settings(name: str) -> list[type[Settings]]:
    """Return the classes of all settings of a method's runs, with each recogniser."""
    return list(dict.fromkeys(run_settings(name, recogniser) for recogniser in RECOGNISERS))


def _recogniser_of(values: Mapping[str, Any]) -> Any:
    """Return the name of the recogniser that nested settings choose."""
    section = values.get("recogniser")
    own = section.get("method", "segmental") if isinstance(section, Mapping) else "segmental"
    return RECOGNISERS.named(own, _CHOICE).name


@cache
def _extended(kind: type[Settings], *parts: tuple[str, type[Settings]]) -> type[Settings]:
    if not parts:
        return kind
    sections: dict[str, Any] = {name: (part, part()) for name, part in parts}
    made = create_model(kind.__name__, __base__=kind, __module__=kind.__module__, **sections)
    return cast("type[Settings]", made)


def run_config(
    method: str,
    preset: str,
    values: Mapping[str, Any],
    *,
    place: str,
    extra: Literal["ignore"] | None = None,
) -> RunConfig:
    """Validate all settings of a run, by section; sections that are missing have their defaults.

    Args:
        method: Name of the method.
        preset: Name of the preset that they come from.
        values: Plain values by section.
        place: Where they come from, for messages.
        extra: "ignore" passes over unknown keys; by default they are refused.

    Raises:
        ConfigError: An unknown key, or a value that is invalid.
    """
    recogniser, found = _recogniser_of(values), find_method(method)
    whole = validated(run_settings(method, recogniser), values, place=place, extra=extra)
    sections = {name: getattr(whole, name) for name in type(whole).model_fields}
    parts = {name: sections.pop(name) for name in _parts(found, recogniser)}
    return RunConfig(method, preset, found.settings.model_construct(**sections), parts)


def preset_names() -> list[str]:
    """Return the names of the presets shipped with the package."""
    return names_in(PRESETS)


def preset_files(preset: str, method: str, recogniser: str = "segmental") -> list[PresetFile]:
    """Read the files that a method's settings come from, bases first.

    Args:
        preset: Name of a shipped preset, or path of a TOML file.
        method: Name of the method.
        recogniser: Name of the recogniser, whose section has presets, too.
    """
    folders: list[Traversable] = [PRESETS]
    parts = _parts(find_method(method), recogniser).values()
    for kind in (*run_settings(method, recogniser).__mro__, *parts):
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
    shared: bool = False,
) -> RunConfig:
    """Load a method's settings from a preset, choose its variant, apply overrides.

    Args:
        preset: Name of a shipped preset, or path of a TOML file of the same form.
        method: Name of the method.
        dataset: Name of the data set; a variant applies if this begins with the variant's
            `dataset`.
        horizon: T; a variant applies if this equals the variant's `horizon`, if it names one.
        overrides: Dotted keys to values, such as {"training.optimiser.epochs": 10}; strings are
            read as TOML values.
        shared: Ignore overrides of sections that only other methods read.

    Raises:
        ConfigError: No such method or preset, or an unknown key or invalid value; the message names
            it.
    """
    place = f"preset '{preset}' (cefito config show {preset} shows all settings)"
    overrides = overrides or {}
    first = [file.values for file in preset_files(preset, method)]
    chosen = _recogniser_of(changed({}, overrides))
    for values in () if "recogniser.method" in overrides else first:
        chosen = _recogniser_of(values) if "recogniser" in values else chosen
    kind = run_settings(method, chosen)
    for key in overrides:
        section = key.partition(".")[0]
        if section == "preset":
            raise ConfigError(
                "the setting 'preset' is the name of the preset itself and cannot be changed. "
                "Choose another preset instead.",
                setting="preset",
            )
        if section not in kind.model_fields and (other := _reader(section)) is not None:
            check_key(key, *_all_settings(other), place=place)
    if not shared:
        check_sections(overrides, [method])
    files = preset_files(preset, method, chosen)
    values = preset_values(files, kind, dataset=dataset, horizon=horizon)
    values = changed(values, {**find_method(method).changes, **overrides})
    method_values = {
        name: section_values
        for name, section_values in values.items()
        if name in kind.model_fields or _reader(name) is None
    }
    return run_config(method, Path(preset).stem, method_values, place=place)


def check_keys(keys: Iterable[str]) -> None:
    """Refuse dotted keys that no method reads (ConfigError)."""
    kinds = [kind for method in METHODS for kind in _all_settings(method)]
    for key in keys:
        check_key(key, *kinds, place="settings (cefito config show shows all)")


def check_sections(keys: Iterable[str], methods: Iterable[str]) -> None:
    """Refuse dotted keys of sections that only other methods read (ConfigError)."""
    names = list(dict.fromkeys(methods))
    read = dict.fromkeys(part for name in names for part in run_settings(name).model_fields)
    for key in keys:
        section = key.partition(".")[0]
        if section not in read and _reader(section) is not None:
            remedy = f"Change one of {', '.join(read)}" if read else "Leave it out"
            raise ConfigError(
                f"setting '{key}': is not read by {' or '.join(names)}. {remedy}.", setting=key
            )


def method_settings(method: str, values: Mapping[str, Any], *, place: str) -> Settings:
    """Validate the settings of a finished run; sections that its method lacks are ignored.

    Settings that are gone are passed over with a warning if only training read them.

    Args:
        method: Name of the method.
        values: Settings by section.
        place: Where they come from, for messages.

    Raises:
        ConfigError: Other settings are gone, or one is invalid.
    """
    kind = find_method(method).settings
    method_values = {
        name: section_values for name, section_values in values.items() if name in kind.model_fields
    }
    prefixes = [f"{name}." for name in setting_names(kind)]
    gone = [
        key
        for key in flattened(method_values)
        if not any(name.startswith(f"{key}.") for name in prefixes)
    ]
    if needed := [key for key in gone if not _OF_TRAINING.search(key)]:
        names = ", ".join(f"'{key}'" for key in needed)
        problem = "this version lacks settings that planning needs"
        raise ConfigError(f"{place}: {problem}: {names}.", setting=needed[0])
    if gone:
        logger.warning("%s: passed over %s, which training alone read", place, ", ".join(gone))
    return validated(kind, method_values, place=place, extra="ignore")


def precisions(precision: Precision, method: str) -> dict[str, Precision]:
    """Return the precision of every training of a method by dotted key, as overrides."""
    keys = setting_names(run_settings(method))
    return {key: precision for key in keys if key.rpartition(".")[2] == "precision"}


def _reader(section: str) -> str | None:
    """The method with a section; None if no method has it."""
    return next((name for name in METHODS if section in run_settings(name).model_fields), None)


PUBLISHED = Shape(observation_dim=1536, tasks=18, actions=133, horizon=3, text_dim=512)
"""CrossTask in the unified protocol at T = 3, with text vectors of CLIP ViT-B/32."""


def listed_methods() -> list[dict[str, Any]]:
    """Return all registered methods as values for JSON, in the order of their registration.

    A list needs no network of methods that declare their abilities, as all of this package do.
    """
    return [
        {
            "name": name,
            "title": method.title or name,
            "what": method.line,
            "package": " ".join(METHODS.package(name) or ()) or None,
            "paper": None if method.paper is None else method.paper.to_dict(),
            "needs": list(method.needs),
            "uses": list(method.uses),
            "can": list(abilities_of(method)),
            # of each network at the published size
            "parameters": dict(method.parameters if method.abilities else published_sizes(method))
            or None,
            "rows": [
                {key: getattr(row, key) for key in ("name", "title", "ablation")}
                for row in method.variants
            ],
        }
        for name, method in METHODS.items()
    ]


def abilities_of(method: Method) -> tuple[str, ...]:
    """Return the abilities of a method's planners, in words."""
    abilities = method.abilities or method.planner.abilities
    able = (entry.name for entry in fields(Abilities) if getattr(abilities, entry.name))
    return tuple("top-k" if name == "top_k" else name.replace("_", " ") for name in able)


def published_sizes(method: Method) -> dict[str, int]:
    """Return the parameters of each network in the preset `paper`, built without memory."""
    config = load_config(
        "paper", method=method.name, dataset="crosstask", horizon=PUBLISHED.horizon
    )
    with weights_to_come():
        return method.planner.sizes(config.settings, PUBLISHED)
