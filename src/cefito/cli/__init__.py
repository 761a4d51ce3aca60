"""The command line: thin commands that parse, call one function of the library and print.

Results go to stdout, talk to stderr. An error that a user can act on is one line on stderr and exit
code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["build_app", "main"]

# Every command by its name: where it lives and its line in `cefito --help`. A module is imported
# only when its command is called, so that help is quick and does not load torch. Where
# "module:name" is an App with subcommands, it must bear the name of the command; where it is a
# function, that function is the command. New commands are added here only.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": (
        "cefito.cli.quickstart:quickstart",
        "The whole method once, in minutes, on a small simulated world.",
    ),
    "data": ("cefito.cli.data:app", "Prepare, describe and check data sets."),
    "train": ("cefito.cli.train:train", "Train a planner on a prepared data set."),
    "evaluate": ("cefito.cli.evaluate:evaluate", "Score a run on a split."),
    "compare": ("cefito.cli.compare:compare", "Planners beside each other: train, score, tables."),
    "reproduce": (
        "cefito.cli.reproduce:reproduce",
        "A table or figure of the paper, on a prepared data set.",
    ),
    "plan": ("cefito.cli.plan:plan", "Plan the actions between two observations."),
    "extract": ("cefito.cli.extract:extract", "Features of videos, one vector a second."),
    "embed": ("cefito.cli.embed:embed", "A data set with text embeddings of its actions' names."),
    "import-checkpoint": (
        "cefito.cli.import_checkpoint:import_checkpoint",
        "Weights of the authors' checkpoints as a run.",
    ),
    "export-checkpoint": (
        "cefito.cli.export_checkpoint:export_checkpoint",
        "Weights of a run as a checkpoint of the authors' layout.",
    ),
}


def build_app() -> App:
    """The command-line application, without any command's module imported."""
    from cyclopts import App

    app = App(
        name="cefito",
        version=version("cefito"),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        help="Plan the steps between two observations by searching a learned energy field.",
    )
    for name, (path, line) in COMMANDS.items():
        app.command(path, name=name, help=line)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the console entry point.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code: 0, what a command returned, 2 for a wrong call or an error that a user can
        act on, 130 when interrupted.
    """
    from cyclopts import CycloptsError

    app, given = build_app(), sys.argv[1:] if argv is None else list(argv)
    try:
        result = app(given, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CefitoError as problem:
        from cefito.cli.remedy import with_option

        return _fail(with_option(problem, app, given), 2)
    except CycloptsError as problem:
        return _fail(f"{problem} (see --help)", 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # the reader of stdout has gone, as with `| head`; nothing more can be said there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _fail(message: str, code: int) -> int:
    sys.stderr.write("error: " + " ".join(message.split()) + "\n")
    return code
