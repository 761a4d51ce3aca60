"""Safe console output: one line for any error, and text that cannot change the terminal.

Letters that a console cannot show are replaced by similar ones.
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

__all__ = [
    "Ended",
    "ending_signals",
    "explain",
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
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def printable(text: str) -> str:
    """Return text with all characters that change a terminal as escapes."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def open_streams() -> None:
    """Make output safe for consoles of few letters, and for a closed stdout or stderr."""
    codecs.register_error(_HANDLER, _nearest)
    if sys.stdout is None:  # put a read-only file in its place, so that no other takes its number
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
    """Discard further output to stdout, which cannot take it."""
    with suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)


@contextmanager
def ending_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `Ended`, so that workers end and temporary files are removed.

    Signals that are handled or ignored already (nohup), and other threads, are left alone.
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


def explain(problem: Exception) -> tuple[str, int]:
    """Return an error in words, and the exit code: 2 if the user can act on it, else 1."""
    detail, words = one_line(str(problem)), str(problem).lower()
    if isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError)  # PyTorch's
        and any(part in words for part in ("out of memory", "allocate memory", "storage size"))
    ):
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
        remedy = _REMEDIES.get(problem.errno or 0, "")
        if problem.filename in (None, ""):
            return f"the operating system says: {reason}. {remedy}", 1
        name = problem.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {reason}. {remedy}", 2
    return (
        f"unexpected {type(problem).__name__}: {detail} – a defect of cefito; "
        "repeat the command with --traceback to see where"
    ), 1


def one_line(text: str) -> str:
    """Return text in one line, shortened in the middle if it is very long."""
    text = " ".join(text.split())
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def show_traceback(problem: BaseException) -> None:
    """Write the traceback of an error to stderr."""
    sys.stderr.write(printable("".join(traceback.format_exception(problem))))
