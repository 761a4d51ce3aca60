"""The console of all commands: results to stdout, messages, progress and errors to stderr.

Output is safe: one line for any error, and text that cannot change the terminal. Letters that a
console cannot show become escapes. `--verbose` and `--quiet`, anywhere on the line, say how much is
shown.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, cast

from cefito.errors import CefitoError, ConfigError, is_out_of_memory, remedy_for
from cefito.progress import Advance, bar, silent

if TYPE_CHECKING:
    from cefito.data.prepared import PreparedDataset


class Volume(IntEnum):
    """How much a command prints besides results and errors, which it always prints."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


VOLUMES = {"--verbose": Volume.VERBOSE, "--quiet": Volume.QUIET}
"""The options of every command that set it."""

_current = Volume.NORMAL  # one for all threads of the process


def volume() -> Volume:
    """Return the current verbosity."""
    return _current


@contextmanager
def at_volume(chosen: Volume) -> Iterator[None]:
    """Set the verbosity while the context is open."""
    global _current
    before, _current = _current, chosen
    try:
        yield
    finally:
        _current = before


def split_volume(argv: Sequence[str]) -> tuple[list[str], Volume]:
    """Split the arguments into all others and the verbosity, up to an argument "--"."""
    end = argv.index("--") if "--" in argv else len(argv)
    levels = {word for word in argv[:end] if word in VOLUMES}
    if len(levels) > 1:
        raise ConfigError("--verbose --quiet: expected one of them.")
    others = [word for word in argv[:end] if word not in VOLUMES]
    return [*others, *argv[end:]], VOLUMES[levels.pop()] if levels else Volume.NORMAL


_OWN_THREADS = ("plan-batch", "serve")  # commands with an option --threads of their own
_ALL_CORES = ("extract", "embed", "data", *_OWN_THREADS)
_LARGE = ("paper", "released")  # presets of large networks


def split_threads(argv: Sequence[str]) -> list[str]:
    """Take `--threads N` off the arguments, and set the number of threads of this process.

    Unless OMP_NUM_THREADS is set, the default is one: networks are small, so that more threads gain
    little, and wait for each other where other programs run. Encoders and presets of large networks
    have all cores. PyTorch reads the variable when it is imported.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    words, others, numbers = iter(argv[:end]), list[str](), list[str]()
    for word in words:
        name, equals, number = word.partition("=")
        if name == "--threads":
            numbers.append(number if equals else next(words, ""))
        else:
            others.append(word)
    others += argv[end:]
    command = next((word for word in others if not word.startswith("-")), "")
    if command in _OWN_THREADS:
        return list(argv)
    if not numbers:
        line = " ".join(argv).replace("=", " ")
        large = any(f"--preset {preset}" in line for preset in _LARGE)
        if command not in _ALL_CORES and not large:
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        return others
    number = numbers[0]
    valid = re.fullmatch("[0-9]{1,9}", number) and 1 <= int(number) <= _MOST_THREADS
    if not valid or len(numbers) > 1:
        shown = f"--threads {number}".strip()
        raise ConfigError(f"{shown}: expected one number from 1 to {_MOST_THREADS}.")
    os.environ["OMP_NUM_THREADS"] = number
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(number))
    return others


_LONGEST, _MOST_THREADS = 2000, 1024
_NARROWEST, _WIDEST = 40, 400  # columns of help and of tables
# control characters but tab and newline, and those that turn the direction of writing
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Ended(BaseException):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class ReaderGone(BaseException):
    """The reader of stdout is gone, as with `| head`."""


def printable(text: str) -> str:
    """Return text with all characters that change a terminal as escapes."""
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


class _Stream:
    """A standard stream that hands the errors of its writes to a function."""

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None]) -> None:
        self._stream, self._failed = stream, failed

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as problem:
            self._failed(problem)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as problem:
            self._failed(problem)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_streams() -> None:
    """Make output safe for consoles of few letters or of an odd width, and for lost streams.

    A full or closed stderr loses messages only, and a stdout of this kind ends the command.
    """
    if "COLUMNS" in os.environ:  # rich takes it as it is
        width = shutil.get_terminal_size().columns
        os.environ["COLUMNS"] = str(min(max(width, _NARROWEST), _WIDEST))
    if sys.stdout is None:
        # The next file to be opened would take descriptor 1 and receive the results. A file that
        # cannot be written takes it instead.
        with suppress(OSError):
            handle = os.open(os.devnull, os.O_RDONLY)
            if handle != 1:
                os.dup2(handle, 1)
                os.close(handle)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # not every replacement can do this
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if not isinstance(sys.stdout, _Stream):
        sys.stdout = cast("TextIO", _Stream(sys.stdout, lose_stdout))
    if not isinstance(sys.stderr, _Stream):
        sys.stderr = cast("TextIO", _Stream(sys.stderr, lambda problem: None))  # noqa: ARG005


def lose_stdout(problem: OSError) -> None:
    """Raise an error of stdout with its name, and discard further output."""
    with suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)
    if isinstance(problem, BrokenPipeError):
        raise ReaderGone from problem
    raise OSError(problem.errno, problem.strerror, "standard output") from problem


@contextmanager
def ending_signals(*names: str, at_once: bool = False) -> Iterator[None]:
    """Let signals raise `Ended`, so that workers end and temporary files are removed.

    At once, they end the process instead, for threads that read and write cannot be stopped.
    Signals that are ignored (nohup), and other threads, are left alone.
    """

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if at_once:
            os._exit(128 + number)
        raise Ended(number)

    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in names:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                old[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def hangups_held() -> Iterator[None]:
    """Hold SIGHUP back until a service that has begun takes it as a request to reload."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def explain(problem: Exception) -> tuple[str, int]:
    """Return an error in words, and the exit code: 2 if the user can act on it, else 1."""
    detail = one_line(str(problem))
    if is_out_of_memory(problem):
        return (
            f"not enough memory{f' ({detail})' if detail else ''}. Use smaller settings or less "
            "data, or a machine with more memory."
        ), 1
    if isinstance(problem, RecursionError):
        return "a file, option or name is nested too deeply. Make it flatter.", 2
    if isinstance(problem, UnicodeError):
        return f"text that cannot be read or written here: {detail}. Use UTF-8.", 2
    if isinstance(problem, OSError):
        reason = problem.strerror or str(problem) or type(problem).__name__
        said = f"{reason}. {remedy_for(problem, default='')}"
        if problem.filename in (None, ""):
            return f"the operating system says: {said}", 1
        name = problem.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {said}", 2
    return (
        f"unexpected {type(problem).__name__}: {detail} – a defect of cefito or of a "
        "package that extends it; repeat the command with --traceback to see where"
    ), 1


def one_line(text: str) -> str:
    """Return text in one line, shortened in the middle if it is very long."""
    text = " ".join(text.split())
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def word(path: Path | str) -> str:
    """Return a path as a word of a command that can be copied into a shell."""
    return shlex.quote(str(path))


def talk(message: str, *, urgent: bool = False) -> None:
    """Write a message to stderr; under `--quiet` only if it is urgent."""
    if volume() is Volume.QUIET and not urgent:
        return
    sys.stderr.write(printable(message) + "\n")
    sys.stderr.flush()


def wrote(target: Path, dataset: PreparedDataset) -> dict[str, Any]:
    """Say that a data set was written, also as a value of JSON."""
    talk(f"wrote {target}: {dataset.name}, fingerprint {dataset.fingerprint[:12]}")
    return {"out": str(target), "name": dataset.name, "fingerprint": dataset.fingerprint}


def print_json(value: Any, *, indent: int | None = 1) -> None:
    """Write a value without NaN as JSON to stdout, in ASCII unless the console is of UTF-8."""
    letters = (sys.stdout.encoding or "").lower().replace("_", "-") in ("utf-8", "utf8")
    text = json.dumps(value, indent=indent, ensure_ascii=not letters, allow_nan=False)
    sys.stdout.write(text + "\n")


def print_bytes(data: bytes) -> None:
    """Write a file to stdout."""
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as problem:
        lose_stdout(problem)


def program() -> str:
    """Return how a shell can call this program: its name, or its path if that finds another."""
    called, on_path = Path(sys.argv[0]), shutil.which("cefito")
    if called.name != "cefito" or (on_path is not None and Path(on_path).samefile(called)):
        return "cefito"
    return str(called)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout, never cut: framed on a terminal, else aligned plain columns.

    Columns of numbers are aligned to the right; None is an empty cell. In a terminal that is too
    narrow, cells have several lines, and none is cut.

    Args:
        title: Stands above it on a terminal.
        columns: Heads of its C columns.
        rows: Cells, C of each row.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows) and all(value is None or isinstance(value, int | float) for value in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(columns))
    ]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        framed = Table(title=Text(printable(title)) if title else None, title_justify="left")
        for column, side in zip(columns, right, strict=True):
            how: Any = {"justify": "right" if side else "left", "overflow": "fold"}
            framed.add_column(Text(column), **how)
        for row in cells:
            framed.add_row(*map(Text, row))
        Console(file=sys.stdout).print(framed)
        return
    lines = [printable(title)] if title else []
    for line in (columns, *cells):
        padded = [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return printable(str(value)).replace("\n", "\\n")


def progress(
    description: str, *, total: int | None = None, passing: bool = False
) -> AbstractContextManager[Advance]:
    """Show the progress of a work on stderr; a `cefito.progress.Progress`.

    Args:
        description: What is done.
        total: Number of units; None if it is not known.
        passing: Whether the bar goes when it is full.
    """
    shown = silent if volume() is Volume.QUIET else bar(passing=passing)
    return shown(printable(description), total=total)


passing_progress = partial(progress, passing=True)
"""Progress without a trace: the bar vanishes, and short work writes no line."""


def check_any(problems: Sequence[CefitoError], kept: Sequence[object]) -> None:
    """Raise the first of the errors of videos that were left out, if none was kept."""
    if problems and not kept:
        left_out(problems[1:])
        raise problems[0]


def left_out(problems: Sequence[CefitoError]) -> int:
    """Say why videos were left out, and return the exit code: 2, or 0 if none was."""
    for problem in problems:
        talk(f"error: left out: {problem}", urgent=True)
    return 2 if problems else 0


@contextmanager
def log_warnings() -> Iterator[None]:
    """Show the library's warnings on stderr, and its information under `--verbose`."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            urgent = record.levelno >= logging.WARNING
            talk(f"{record.levelname.lower()}: {record.getMessage()}", urgent=urgent)

    level = logging.INFO if volume() is Volume.VERBOSE else logging.WARNING
    logger, handler = logging.getLogger("cefito"), Lines(level)
    old = logger.level
    logger.addHandler(handler)
    if level < logger.getEffectiveLevel():
        logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(old)


@contextmanager
def stoppable(message: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first Ctrl-C, which writes the message.

    A second one interrupts. Nothing changes outside the main thread, or if interrupts are ignored.
    """
    asked = threading.Event()
    old = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:  # noqa: ARG001
        asked.set()
        signal.signal(signal.SIGINT, old)
        # not to sys.stderr, which the interrupt may have found half-way through a write
        with suppress(OSError):
            os.write(2, f"\n{message}\n".encode())

    if threading.current_thread() is not threading.main_thread() or old in (signal.SIG_IGN, None):
        yield asked.is_set
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, old)
