"""Name the command-line option that an error of the library is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["with_option"]

_OTHER_NAMES = {  # settings whose options have another name
    **{"folder": "out", "path": "dataset", "target": "out", "task": "oracle_task"},
}


def with_option(problem: CefitoError, app: App, argv: Sequence[str]) -> str:
    """Return the message of an error, followed by the option of its setting, if there is one."""
    message = str(problem)
    option = _option(problem.setting, app, argv) if problem.setting else ""
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
    given = [entry.removeprefix("--set=").strip() for entry in argv]
    if "." in setting or any(entry.startswith((f"{setting}=", f"{setting}.")) for entry in given):
        return f"{options['set_']} {setting}=…"
    return ""
