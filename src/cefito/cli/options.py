"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from cefito.cli import quoted
from cefito.cli.console import passing_progress
from cefito.cli.values import Flag
from cefito.data.annotations import SPLITS
from cefito.errors import ConfigError
from cefito.markup import TIME_FORMS, parse_seconds
from cefito.planners.given import Given
from cefito.planners.methods import check_keys
from cefito.runtime import pick_device
from cefito.settings import validated
from cefito.tracks.document import Choices

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from cefito.inference.whole_videos import Reading


def moment(text: str) -> float:
    """Read a time in seconds, or in hours, minutes and seconds."""
    try:
        return parse_seconds(text)
    except ValueError as problem:
        raise ValueError(f"{quoted(text)} is not a time. {TIME_FORMS}") from problem


Moment = Annotated[float | None, Parameter(converter=lambda _, tokens: moment(tokens[0].value))]
"""A time in a video, in seconds."""

_REPEATED = Parameter(negative="", consume_multiple=False, show_default=False)
Several = Annotated[tuple[str, ...], _REPEATED]
"""An option that may be repeated."""

SeveralPaths = Annotated[tuple[Path, ...], _REPEATED]
"""The same for paths."""

Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="Change a setting of the preset, as in --set any_length_training.optimiser.epochs=20 "
        "of a chain of several lengths, or --set chain_training.optimiser.epochs=20 of one length; "
        "may be repeated.",
        negative="",
        consume_multiple=False,
    ),
]
"""Changes of settings, as `settings` reads them."""

Device = Annotated[str, Parameter(help="auto, cpu, cuda, or one of several, as cuda:1.")]
"""Where PyTorch computes."""

AnyDevice = Annotated[str, Parameter(help="auto, cpu, cuda, or mps on a Mac.")]
"""Where an encoder computes."""

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
    return pairs("--set", entries, "KEY=VALUE, as in --set any_length_training.optimiser.epochs=20")


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
        given: Any = {**vars(self), "rate": self.feature_rate, "progress": passing_progress}
        del given["task"], given["feature_rate"]
        reading: Reading = given
        return reading


AS_RECORDED = RecordingOptions()
"""Nothing changed."""
