"""What stands between a command and the console: errors of any kind in one line, and safe text.

Names come from files of others: characters that move a terminal's cursor or turn the direction of
writing are shown as escapes. A console that knows fewer letters gets the nearest ones it has.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from cefito.errors import CefitoError

__all__ = [
    "Ended",
    "ending_signals",
    "explained",
    "one_line",
    "open_streams",
    "printable",
    "show_traceback",
    "silence_stdout",
]

_LONGEST = 2000
# control characters but tab and newline, and those that turn the direction of writing
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NEAREST = {
    **{"→": "->", "–": "-", "—": "-", "…": "...", "≤": "<=", "≥": ">=", "×": "x", "±": "+-"},
    **{"−": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "·": "*", "⁹": "^9", "¹": "(1)"},
    **{"²": "(2)", "λ": "lambda", "═": "=", "─": "-", "│": "|"},
}
_HANDLER = "cefito.nearest"
_REMEDIES = {
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOSPC: "Free some disk space.",
    errno.EDQUOT: "Free some disk space.",
    errno.EACCES: "See to its permissions, or choose another place.",
    errno.EPERM: "See to its permissions, or choose another place.",
    errno.EROFS: "Choose another place.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


class Ended(BaseException):
    """The process was asked to end by a signal.

    Attributes:
        signal: Which one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def printable(text: str) -> str:
    """Text without characters that change a terminal: each of them becomes its escape."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def open_streams() -> None:
    """Have output survive consoles of few letters, and a stdout that was closed before we began."""
    codecs.register_error(_HANDLER, _nearest)
    if (
        sys.stdout is None
    ):  # a place that refuses to be written to, so that no file takes its number
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
            stream.reconfigure(errors=_HANDLER)  # type: ignore[union-attr]


def _nearest(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    letters = problem.object[problem.start : problem.end]
    shown = "".join(_NEAREST.get(letter, ascii(letter)[1:-1]) for letter in letters)
    return shown, problem.end


def silence_stdout() -> None:
    """Have nothing more written to stdout, which cannot take it, when the process ends."""
    with suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)


@contextmanager
def ending_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `Ended`, so that workers end and nothing half-made is left.

    Signals that somebody else minds or ignores (nohup) stay as they are; so does all outside the
    main thread.
    """

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Ended(number)

    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                old[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def explained(problem: Exception) -> tuple[str, int]:
    """An error in words, and the exit code: 2 where the user can do something, 1 where not."""
    if isinstance(problem, CefitoError):
        return one_line(str(problem)), 2
    if isinstance(problem, MemoryError) or _no_memory(problem):
        detail = f" ({one_line(str(problem))})" if str(problem) else ""
        return (
            f"not enough memory{detail}. Take smaller settings or less data, or a machine with "
            "more memory."
        ), 1
    if isinstance(problem, RecursionError):
        return "a file, option or name is nested too deeply. Make it flatter.", 2
    if isinstance(problem, UnicodeError):
        return f"text that cannot be read or written here: {one_line(str(problem))}. Use UTF-8.", 2
    if isinstance(problem, OSError):
        return _of_the_system(problem)
    return (
        f"unexpected {type(problem).__name__}: {one_line(str(problem))} – a defect of cefito; "
        "repeat the command with --traceback to see where"
    ), 1


def _of_the_system(problem: OSError) -> tuple[str, int]:
    reason = problem.strerror or str(problem) or type(problem).__name__
    place = problem.filename if problem.filename is not None else ""
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    remedy = _REMEDIES.get(problem.errno or 0, "")
    where = f"{place}: " if place != "" else "the operating system says: "
    return one_line(f"{where}{reason}. {remedy}"), 2 if place != "" else 1


def _no_memory(problem: Exception) -> bool:
    """Whether it is what PyTorch raises where memory is short."""
    words = str(problem).lower()
    return isinstance(problem, RuntimeError) and (
        "out of memory" in words or "allocate memory" in words or "storage size" in words
    )


def one_line(text: str) -> str:
    """One line, not too long."""
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return text


def show_traceback(problem: BaseException) -> None:
    """Write where an error came from to stderr."""
    lines = traceback.format_exception(problem)
    sys.stderr.write("".join(printable(line) for line in lines))
