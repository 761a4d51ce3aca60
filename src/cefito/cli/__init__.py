"""The command line: thin commands that parse, call one function of the library and print.

Results go to stdout, talk to stderr. An error that a user can act on is one line on stderr and exit
code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from cefito.errors import CefitoError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["build_app", "main"]

TRACEBACK = "--traceback"
"""Option of every command: show also where in the program an error came from."""

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
    "finetune": (
        "cefito.cli.finetune:finetune",
        "Train a run further: new videos, new tasks and actions.",
    ),
    "evaluate": ("cefito.cli.evaluate:evaluate", "Score a run on a split."),
    "planners": (
        "cefito.cli.planners:planners",
        "Every method: its paper, what it needs and can do, its size, its rows of tables.",
    ),
    "compare": ("cefito.cli.compare:compare", "Planners beside each other: train, score, tables."),
    "report": (
        "cefito.cli.report:report",
        "One HTML file about a run or a comparison, to look at and to pass on.",
    ),
    "reproduce": (
        "cefito.cli.reproduce:reproduce",
        "A table or figure of the paper, on a prepared data set.",
    ),
    "plan": ("cefito.cli.plan:plan", "Plan the actions between two observations."),
    "llm-prompt": (
        "cefito.cli.llm_prompt:llm_prompt",
        "What a language model would be told, and how often it would be asked.",
    ),
    "serve": (
        "cefito.cli.serve:serve",
        "Plans over HTTP, with a page at / (pip install 'cefito[serve]').",
    ),
    "plan-batch": (
        "cefito.cli.plan_batch:plan_batch",
        "Plan any number of queries into a file, resumable, on several processes or a cluster.",
    ),
    "config": ("cefito.cli.config:app", "Show the settings of presets; compare those of runs."),
    "check": ("cefito.cli.check:check", "Whether a data set, run or study is whole and unchanged."),
    "export": ("cefito.cli.share:export", "A run as one zip file, with a model card."),
    "push": ("cefito.cli.share:push", "A run onto a model hub."),
    "pull": ("cefito.cli.share:pull", "A run from a model hub."),
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
    from cyclopts import App, Parameter

    from cefito.cli.converters import convert_option

    app = App(
        name="cefito",
        version=version("cefito"),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(converter=convert_option),
        help="Plan the steps between two observations by searching a learned energy field.",
        help_epilogue="Every command also takes --verbose (say more), --quiet (results and errors "
        f"alone) and {TRACEBACK} (with an error, show also where in the program it came from).",
    )
    app.register_install_completion_command(help="Install completion for the shell in use.")
    for name, (path, line) in COMMANDS.items():
        app.command(path, name=name, help=line)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the console entry point.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code: 0, what a command returned, 2 for a wrong call or an error that a user can
        act on, 1 for one that only the machine or the program is to blame for, 130 when
        interrupted, 128 and the signal's number when ended by one.
    """
    from cefito.cli import console_errors
    from cefito.cli.verbosity import at_volume, split_volume

    given = sys.argv[1:] if argv is None else list(argv)
    console_errors.open_streams()
    kept = [part for part in given if part != TRACEBACK]
    traced = len(kept) < len(given)
    if any("\0" in part for part in kept):
        return _fail("an argument holds a NUL character, which no name can have.", 2, None)
    try:
        with console_errors.ending_signals():
            kept, chosen = split_volume(kept)
            with at_volume(chosen):
                return _run(kept)
    except KeyboardInterrupt as problem:
        return _fail("interrupted", 130, problem if traced else None)
    except console_errors.Ended as problem:
        return _fail(f"ended by {problem.signal.name}", 128 + problem.signal, None)
    except BrokenPipeError:
        # the reader of stdout has gone, as with `| head`; nothing more can be said there
        console_errors.silence_stdout()
        return 141
    except Exception as problem:
        message, code = _explained(problem, kept)
        return _fail(message, code, problem if traced else None)


def _run(argv: list[str]) -> int:
    """Call the command; its exit code."""
    from cefito.cli import console_errors

    result = build_app()(argv, exit_on_error=False, print_error=False)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        console_errors.silence_stdout()
        raise OSError(problem.errno, problem.strerror, "standard output") from problem
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _explained(problem: Exception, argv: Sequence[str]) -> tuple[str, int]:
    from cyclopts import CycloptsError

    from cefito.cli import console_errors

    if isinstance(problem, CycloptsError):
        return f"{problem} (see --help)", 2
    if isinstance(problem, CefitoError):
        from cefito.cli.error_options import with_option

        return with_option(problem, build_app(), argv), 2
    return console_errors.explained(problem)


def _fail(message: str, code: int, problem: BaseException | None) -> int:
    """Say what is wrong, with where it came from if that was asked for."""
    from cefito.cli import console_errors

    if problem is not None:
        console_errors.show_traceback(problem)
    sys.stderr.write(f"error: {console_errors.printable(console_errors.one_line(message))}\n")
    return code
