"""The command line: thin commands that parse, call one function of the library and print."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["build_app", "main"]

TRACEBACK = "--traceback"  # option of every command: with an error, also show the traceback

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
        "Score a method on all videos, each by a run that never saw it.",
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

    from cefito.cli.values import convert_option

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on the process's arguments by default, and return the exit code.

    0 or the command's result; 2 for a wrong call or an error that a user can act on, 1 for a fault
    of the machine or the program, 130 if interrupted, 141 if the reader of stdout is gone, 128 plus
    the number of the signal that ended it.
    """
    from cefito.cli import console
    from cefito.cli.console import at_volume, split_threads, split_volume

    arguments = sys.argv[1:] if argv is None else list(argv)
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
    from cefito.cli.values import with_option

    if isinstance(problem, CycloptsError):
        return f"{problem} (see --help)", 2
    if isinstance(problem, CefitoError):
        return with_option(problem, build_app(), argv), 2
    return console.explain(problem)
