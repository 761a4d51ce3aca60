"""The command line: its commands, the conversion of their options, errors and exit codes.

Commands are thin: they parse, call one function of the library and print.
"""

from __future__ import annotations

import gc
import math
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App, Token

__all__ = ["build_app", "main"]

TRACEBACK = "--traceback"  # option of every command: with an error, also show the traceback

# objects between collections of garbage, not 700: what imports make is walked each time, a tenth of
# the time of a short command
_ALLOCATED = 50_000
_DIGITS = 19  # maximum digits of a whole number: as many as a seed of 63 bits has
_SHOWN = 40  # characters of a value in a message
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)

# Every command by its name: its function or App, and its line in `cefito --help`. A module is
# imported only when its command is called, so that help is quick and does not load torch.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": (
        "quickstart:quickstart",
        "The library once, on your own films, a small simulated world or real videos.",
    ),
    "data": ("data:app", "Prepare and describe data sets."),
    "train": ("train:train", "Train a planner on a prepared data set."),
    "finetune": ("train:finetune", "Train a run further: new videos, new tasks and actions."),
    "evaluate": ("evaluate:evaluate", "Score a run on a split."),
    "cross-validate": (
        "evaluate:cross_validate",
        "Score a method on the videos of training and validation, each by a run that never saw it.",
    ),
    "calibrate": ("evaluate:calibrate", "Sets of plans with a guarantee, for plan --coverage."),
    "planners": (
        "methods:planners",
        "Every method: its paper, what it needs and can do, its size, its rows of tables.",
    ),
    "new-planner": ("methods:new_planner", "A package for a planner of your own."),
    "compare": ("compare:compare", "Planners beside each other: train, score, tables."),
    "report": (
        "share:report",
        "One HTML file about a run or a comparison, to look at and to pass on.",
    ),
    "reproduce": ("compare:reproduce", "A table or figure of the paper, on a prepared data set."),
    "plan": ("plan:plan", "Plan the actions between two observations."),
    "follow": ("follow:follow", "The present and the next steps of a film or a camera."),
    "recognise": ("recognise:recognise", "The steps of whole videos, with times."),
    "annotate": ("recognise:annotate", "Recognised steps to correct in an annotation tool."),
    "label": ("serve:label", "Steps proposed and learned in Label Studio (extra serve)."),
    "verify": ("verify:verify", "What was skipped, out of order or done wrongly in videos."),
    "graph": ("verify:graph", "The order of a task's steps: learned, drawn, edited."),
    "serve": ("serve:serve", "Plans over HTTP, with a page at / (extra serve)."),
    "token": ("tokens:app", "Tokens of stations that may use the service."),
    "mcp": ("serve:mcp", "Tools for agents over stdin and stdout (extra mcp)."),
    "plan-batch": (
        "plan:plan_batch",
        "Plan any number of queries into a file, resumable, on several processes or a cluster.",
    ),
    "config": ("methods:app", "Show the settings of presets."),
    "export": ("share:export", "A run as one zip file, or its field as the authors' checkpoint."),
    "extract": ("features:extract", "Features of videos, one vector a second."),
    "embed": ("features:embed", "A data set with text embeddings of its actions' names."),
    "import-checkpoint": (
        "share:import_checkpoint",
        "Weights of the authors' checkpoints as a run.",
    ),
}

# The groups of `cefito --help`, in the order of a project; each command is in one.
GROUPS = {
    "Data": ("quickstart", "data", "extract", "embed"),
    "Train": ("train", "finetune", "calibrate", "config", "import-checkpoint"),
    "Plan": ("plan", "plan-batch", "serve", "token", "mcp"),
    "Videos": ("recognise", "follow", "annotate", "label", "verify", "graph"),
    "Compare": (
        *("evaluate", "cross-validate", "report", "planners", "compare", "reproduce"),
        "new-planner",
    ),
    "Share": ("export",),
}


def build_app() -> App:
    """The command-line application, without any command's module imported."""
    from cyclopts import App, Group, Parameter

    app = App(
        name="cefito",
        version=version("cefito"),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(converter=convert_option),
        help="Plan the steps between two observations by searching a learned energy field.",
        help_epilogue="Every command also takes --verbose (say more), --quiet (results and errors "
        f"alone), {TRACEBACK} (with an error, show also where in the program it came from) and "
        "--threads N (one by default; all cores for extract, embed, data and large presets).",
    )
    other = Group("Other", sort_key=len(GROUPS))
    app["--help"].group = app["--version"].group = other
    app.register_install_completion_command(
        help="Install completion for the shell in use.", group=other
    )
    for number, (title, names) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=number)
        for place, name in enumerate(names):
            path, line = COMMANDS[name]
            app.command(f"cefito.cli.{path}", name=name, help=line, group=group, sort_key=place)
    return app


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on the process's arguments by default, and return the exit code.

    0 or the command's result; 2 for a wrong call or an error that a user can act on, 1 for a fault
    of the machine or the program, 130 if interrupted, 141 if the reader of stdout is gone, 128 plus
    the number of the signal that ended it.
    """
    from cefito.cli import console
    from cefito.cli.console import at_volume, split_threads, split_volume

    arguments = sys.argv[1:] if argv is None else list(argv)
    if argv is None:  # called as the command, not by a program
        gc.set_threshold(_ALLOCATED)
    console.open_streams()
    kept = [word for word in arguments if word != TRACEBACK]
    shows_traceback = len(kept) < len(arguments)
    cause: BaseException | None = None
    try:
        if any("\0" in word for word in kept):
            raise CefitoError("an argument contains a NUL character, which no name can have.")
        with console.ending_signals("SIGTERM", "SIGHUP"):
            kept, chosen = split_volume(split_threads(kept))
            with at_volume(chosen):
                result = build_app()(kept, exit_on_error=False, print_error=False)
                sys.stdout.flush()
                return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except KeyboardInterrupt as problem:
        message, code, cause = str(problem) or "interrupted", 130, problem
    except console.Ended as problem:
        message, code = f"ended by {problem.signal.name}", 128 + problem.signal
    except console.ReaderGone:
        return 141
    except Exception as problem:
        (message, code), cause = _explain(problem, kept), problem
    if shows_traceback and cause is not None:
        sys.stderr.write(console.printable("".join(traceback.format_exception(cause))))
    with suppress(OSError, console.ReaderGone):
        sys.stdout.flush()
    sys.stderr.write(f"error: {console.printable(console.one_line(message))}\n")
    return code


def _explain(problem: Exception, argv: Sequence[str]) -> tuple[str, int]:
    """Return the message and the exit code of an error."""
    from cyclopts import CycloptsError

    from cefito.cli import console

    if isinstance(problem, CycloptsError):
        return f"{problem} (see --help)", 2
    if isinstance(problem, CefitoError):
        return with_option(problem, build_app(), argv), 2
    return console.explain(problem)


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
