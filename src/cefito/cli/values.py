"""Values of options: their conversion, and names in errors; light, since every command loads it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from inspect import Parameter as SignatureParameter
from inspect import signature
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from cyclopts import Parameter

from cefito.cli.console import print_json
from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App, Token

Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value."""

Json = Annotated[Flag, Parameter(help="Print JSON instead of a table.")]
"""Whether the output is for programs."""

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
        raise ValueError(f"{quoted(text)} is not UTF-8, which records need. Rename it.")
    return Path(text)


def whole_number(text: str) -> int:
    """Read a whole number of decimal digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ValueError(f"{quoted(text)} is not a whole number; expected one such as 3.")
    if len(text.strip().lstrip("+-").lstrip("0")) > _DIGITS:
        raise ValueError(f"{quoted(text)} is too large a number.")
    return int(text)


def real_number(text: str) -> float:
    """Read a finite number in decimal notation."""
    if not _REAL.fullmatch(text.strip()):
        raise ValueError(f"{quoted(text)} is not a number; expected one such as 0.5.")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is too large a number.")
    return value


def quoted(text: str) -> str:
    """Return a value for a message, shortened."""
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
