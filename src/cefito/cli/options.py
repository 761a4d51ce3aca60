"""Options that several commands share, conversion of their values, and their names in errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter as SignatureParameter
from inspect import signature
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from cyclopts import Group, Parameter

from cefito.cli.console import passing_progress, print_json
from cefito.data.annotations import SPLITS
from cefito.errors import CefitoError, ConfigError
from cefito.planners.given import Given
from cefito.planners.methods import check_keys
from cefito.runtime import pick_device
from cefito.settings import validated
from cefito.times import TIME_FORMS, parse_seconds
from cefito.tracks.document import Choices
from cefito.tracks.formats import WRITERS

if TYPE_CHECKING:
    from cyclopts import App, Token
    from pydantic.fields import FieldInfo

    from cefito.inference.whole_videos import Reading

    Written = str
else:
    Written = Literal[tuple(sorted(WRITERS))]
"""Name of a format of steps that is written."""

_DIGITS = 19  # maximum digits of a whole number: as many as a seed of 63 bits has
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SHOWN = 40


def said_as_json(command: Callable[..., Any]) -> Callable[..., None]:
    """Add --json to a command that returns what it says; its tables are then left out."""

    @wraps(command)
    def answering(*given: Any, json: bool = False, **options: Any) -> None:
        with redirect_stdout(StringIO()) if json else nullcontext():
            value = command(*given, **options)
        if json:
            print_json(value)

    called = signature(command)
    flag = SignatureParameter("json", SignatureParameter.KEYWORD_ONLY, default=False)
    vars(answering)["__signature__"] = called.replace(
        parameters=[*called.parameters.values(), flag]
    )
    answering.__annotations__ = {**command.__annotations__, "json": Json}
    return answering


def convert_option(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the tokens of an option of type `kind`; a `cyclopts.Parameter.converter`."""
    from cyclopts import convert

    single = kind
    if get_origin(kind) in (Union, UnionType):  # an optional value
        others = [member for member in get_args(kind) if member is not type(None)]
        single = others[0] if len(others) == 1 else kind
    reader = {int: whole_number, float: real_number, Path: _path}.get(single)
    if reader is not None and isinstance(tokens, Sequence) and len(tokens) == 1:
        return reader(tokens[0].value)
    return convert(kind, tokens)


def _path(text: str) -> Path:
    if not text:
        raise ValueError("a file or folder without a name; expected a path.")
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{_quoted(text)} is not UTF-8, which records need. Rename it.")
    return Path(text)


def whole_number(text: str) -> int:
    """Read a whole number of decimal digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ValueError(f"{_quoted(text)} is not a whole number; expected one such as 3.")
    if len(text.strip().lstrip("+-").lstrip("0")) > _DIGITS:
        raise ValueError(f"{_quoted(text)} is too large a number.")
    return int(text)


def real_number(text: str) -> float:
    """Read a finite number in decimal notation."""
    if not _REAL.fullmatch(text.strip()):
        raise ValueError(f"{_quoted(text)} is not a number; expected one such as 0.5.")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_quoted(text)} is too large a number.")
    return value


def moment(text: str) -> float:
    """Read a time in seconds, or in hours, minutes and seconds."""
    try:
        return parse_seconds(text)
    except ValueError as problem:
        raise ValueError(f"{_quoted(text)} is not a time. {TIME_FORMS}") from problem


def _quoted(text: str) -> str:
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
    return f"'{short}'"


_OTHER_NAMES = {  # settings whose options have another name
    **{"folder": "out", "path": "dataset", "target": "out"},
    **{"proxies": "trusted_proxy", "task": "oracle_task"},
}


def with_option(problem: CefitoError, app: App, argv: Sequence[str]) -> str:
    """Return the message of an error, followed by the options of its settings, if there are any.

    Args:
        problem: The error; its `setting` names settings, separated by commas.
        app: The application, whose command has the options.
        argv: Arguments of the call.
    """
    message = str(problem)
    settings = filter(None, problem.setting.split(", "))
    option = ", ".join(filter(None, (_option(setting, app, argv) for setting in settings)))
    return message if not option or option in message else f"{message} ({option})"


def _option(setting: str, app: App, argv: Sequence[str]) -> str:
    """Return the option of a setting of the library; empty if the command has none."""
    options: dict[str, str] = {}
    for argument in app.parse_commands(list(argv))[1][-1].assemble_argument_collection():
        for name in argument.names:
            if name.startswith("--"):
                options.setdefault(argument.field_info.name, name)
    for name in (setting, _OTHER_NAMES.get(setting, "")):
        if name in options:
            return options[name]
    if "set_" not in options:
        return ""
    entries = [entry.removeprefix("--set=").strip() for entry in argv]
    if "." in setting or any(entry.startswith((f"{setting}=", f"{setting}.")) for entry in entries):
        return f"{options['set_']} {setting}=…"
    return ""


Moment = Annotated[float | None, Parameter(converter=lambda _, tokens: moment(tokens[0].value))]
"""A time in a video, in seconds."""

Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value."""

_REPEATED = Parameter(negative="", consume_multiple=False, show_default=False)
Several = Annotated[tuple[str, ...], _REPEATED]
"""An option that may be repeated."""

SeveralPaths = Annotated[tuple[Path, ...], _REPEATED]
"""The same for paths."""

Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="Change a setting of the preset, as in --set training.optimiser.epochs=20; may be "
        "repeated.",
        negative="",
        consume_multiple=False,
    ),
]
"""Changes of settings, as `settings` reads them."""

Device = Annotated[str, Parameter(help="auto, cpu, cuda, or one of several, as cuda:1.")]
"""Where PyTorch computes."""

AnyDevice = Annotated[str, Parameter(help="auto, cpu, cuda, or mps on a Mac.")]
"""Where an encoder computes."""

Json = Annotated[Flag, Parameter(help="Print JSON instead of a table.")]
"""Whether the output is for programs."""

RunFolder = Annotated[Path, Parameter(help="Run folder, as cefito train makes it.")]
"""A run."""

DataFolder = Annotated[Path, Parameter(help="Folder of a prepared data set.")]
"""A data set."""


GIVEN, QUERY, PLANS, CONSTRAINTS, OUTPUT, SEARCH = (
    Group(title, sort_key=number)
    for number, title in enumerate(
        ("Given", "Query", "Plans", "Constraints", "Output", "Search"), 1
    )
)
"""Groups of the options of commands that plan, in the order of their help."""


AnyOptions = TypeVar("AnyOptions")


def options_class(
    base: type, options: Iterable[tuple[str, Any, Any]], group: Group | None = None
) -> Any:
    """Return a class of options, a frozen dataclass, with further fields: name, type, default.

    Args:
        base: Class with the methods and docstring.
        options: Name, type and default of each further field.
        group: Group of the options in the help.
    """
    listed = list(options)
    namespace = {
        "__module__": base.__module__,  # where annotations as strings are looked up
        "__doc__": base.__doc__,
        "__annotations__": {name: kind for name, kind, _ in listed},
        **{name: default for name, _, default in listed},
    }
    made: type = dataclass(frozen=True, kw_only=True)(type(base.__name__, (base,), namespace))
    extra: dict[str, Any] = {} if group is None else {"group": group}
    return Parameter(name="*", **extra)(made)


def with_options(
    options: Iterable[tuple[str, Any, Any]], group: Group | None = None
) -> Callable[[type[AnyOptions]], type[AnyOptions]]:
    """Return a decorator that does what `options_class` does, and keeps the type for checkers."""
    return lambda base: options_class(base, options, group)


def option_name(name: str) -> str:
    """Return the option of a field."""
    return "--" + name.replace("_", "-")


def given_names(options: Any) -> list[str]:
    """Return the names of the fields of options whose value is not the default."""
    return [
        field.name for field in fields(options) if getattr(options, field.name) != field.default
    ]


def field_options(
    fields: Mapping[str, FieldInfo],
    *,
    names: Mapping[str, str] = {},
    kinds: Mapping[Any, Any] = {},
    group: Group | str = "Parameters",
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of the option of each field that has a description.

    Args:
        fields: Fields of settings, by name.
        names: Other names of options, by field.
        kinds: Other types, by the type of the field.
        group: Group of the options in the help.
    """
    for name, field in fields.items():
        kind = {bool: Flag, **kinds}.get(field.annotation, field.annotation)
        several = kind is Several
        text = f"{field.description}" + ' May be repeated; "" for an empty list.' * several
        if field.description:
            parameter = Parameter(name=names.get(name), help=text, group=group)
            yield name, Annotated[kind, parameter], () if several else field.default


class GivenOptions:
    """Options of what a planner is given of windows; each is a field of `Given`."""

    def given(self) -> dict[str, bool]:
        """Return what is given, by field."""
        return {name: True for name in Given.model_fields if getattr(self, name, False)}


def given_options(*names: str) -> type[GivenOptions]:
    """Return the class of the options of some fields of `Given`."""
    options = field_options({name: Given.model_fields[name] for name in names}, group=GIVEN)
    made: type[GivenOptions] = options_class(GivenOptions, options)
    return made


def settings(entries: Sequence[str]) -> dict[str, str]:
    """Parse the entries of `--set`: values by dotted key."""
    return pairs("--set", entries, "KEY=VALUE, as in --set training.optimiser.epochs=20")


def known_settings(entries: Sequence[str]) -> dict[str, str]:
    """Parse the entries of `--set`; refuse keys that no method reads, without torch."""
    values = settings(entries)
    check_keys(values)
    return values


def pairs(option: str, entries: Sequence[str], expected: str) -> dict[str, str]:
    """Parse the entries of an option of the form KEY=VALUE: values by key.

    Args:
        option: Its name, for messages.
        entries: Its values, each KEY=VALUE.
        expected: What was expected, for messages.
    """
    values = {}
    for entry in entries:
        key, sign, value = entry.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"{option} {entry}: expected {expected}.")
        values[key.strip()] = value.strip()
    return values


def check_one(horizon: object, steps: str | None) -> None:
    """Refuse both a number of steps and a range, and neither (ConfigError)."""
    if (horizon is None) == (steps is None):
        raise ConfigError(
            "expected --horizon 3, the number of steps of every plan, or --steps 1-6, a range."
        )


def check_split(split: str) -> None:
    """Refuse a split that no data set has (ConfigError)."""
    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")


def horizons(text: str, option: str = "--horizon") -> tuple[int, ...]:
    """Parse horizons such as "3" or "3,4,5"."""
    parts = [number.strip() for number in text.split(",")]
    distinct = len(set(parts)) == len(parts)
    if not distinct or not all(re.fullmatch(r"[1-9][0-9]{0,3}", number) for number in parts):
        raise ConfigError(
            f"{option} {text[:40]}: expected a positive number of actions, or several different "
            "ones with commas between, as in 3,4,5."
        )
    return tuple(map(int, parts))


_COLUMN = "OURS=THEIRS, a table's name of a column, as in step=action; may be repeated."
_CHOICES = [one for one in field_options(Choices.model_fields) if one[0] != "columns"]


class _Choosing:
    """Options that are settings of `Choices`."""

    @property
    def choices(self) -> Choices:
        """The choices for the readers."""
        values = dict(vars(self))
        column = values.pop("column", ())
        columns = pairs("--column", column, "OURS=THEIRS, as in --column step=action")
        return validated(Choices, {**values, "columns": columns}, place="options")


_CHOICES.append(("column", Annotated[Several, Parameter(help=_COLUMN)], ()))


@with_options(_CHOICES)
class StepOptions(_Choosing):
    """What files of annotated steps leave open: the settings of `Choices`."""


@with_options([one for one in _CHOICES if one[0] != "task"])
class FileOptions(_Choosing):
    """The same for a command that has the task among other options."""


NO_CHOICES = StepOptions()
AS_WRITTEN = FileOptions()
"""Nothing is left open by files of steps."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """How whole videos are read.

    Attributes:
        task: Name or id of the task of all videos; by default it is recognised.
        dataset: Data set of the inputs, which are then ids of its videos; of a LeRobot data set,
            names or numbers of its episodes.
        feature_rate: Rows of features a second; by default as in training.
        encoder: Encoder of video files; by default the one of the run's features.
        weights: File of its weights, for s3d.
        device: auto, cpu or cuda, for the encoder.
        camera: Camera of LeRobot episodes; by default the one of the run's features.
    """

    task: str | None = None
    dataset: Path | None = None
    feature_rate: float | None = None
    encoder: str | None = None
    weights: Path | None = None
    device: str = "auto"
    camera: str | None = None

    def reading(self) -> Reading:
        """Return how videos are read; an unknown device is refused (RunError)."""
        if self.device != "auto":  # which is looked for when an encoder is opened
            pick_device(self.device, float64=False)
        return {
            "dataset": self.dataset,
            "rate": self.feature_rate,
            "encoder": self.encoder,
            "weights": self.weights,
            "device": self.device,
            "camera": self.camera,
            "progress": passing_progress,
        }


AS_RECORDED = RecordingOptions()
"""Nothing changed."""
