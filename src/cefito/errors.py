"""Exceptions that a user can act on.

CefitoError
├── DataError        a file or value of a data set is missing, malformed or inconsistent
├── ConfigError      a setting or argument cannot be used
├── RunError         a run folder cannot be opened, continued or used as asked
└── SamplingError    a task cannot give as many distinct negatives as asked for

Every message says what was found, where, and what to do. The command line prints it as one line and
exits with 2.
"""

from __future__ import annotations

import errno
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

_PERMISSIONS = "Change its permissions or choose another folder."
_SPACE = "Free some disk space or choose another folder."
_REMEDIES = {
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EROFS: "Choose another folder.",
    errno.EISDIR: "Remove it or choose another name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.EFBIG: "Raise the limit of a file's size (ulimit -f).",
}
_HOW = ("type", "parsing", "parsing_size", "from_float")
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
# What is said of pydantic's errors, by their type; of others, its own words.
_COMPLAINTS = {
    **{f"{kind}_{how}": f"expected {words}" for kind, words in _KINDS.items() for how in _HOW},
    **{f"{kind}_type": "expected a list" for kind in ("list", "tuple")},
    **{f"{kind}_type": "expected an object" for kind in ("dict", "model", "model_attributes")},
    "extra_forbidden": "there is none of that name",
    "finite_number": "expected a finite number",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "json_invalid": "not valid JSON ({error})",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "literal_error": "expected {expected}",
    "missing": "is missing",
    "none_required": "expected null",
    "string_pattern_mismatch": "expected text of the pattern {pattern}",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} characters",
    "string_type": "expected text",
    "too_long": "expected a length of at most {max_length}",
    "too_short": "expected a length of at least {min_length}",
}
_WITHOUT_VALUE = ("extra_forbidden", "json_invalid", "missing")
_OF_MEMORY = ("out of memory", "allocate memory", "storage size", "bad_alloc")


class CefitoError(Exception):
    """Base of all errors that a user can act on.

    Args:
        message: What was found, where, and what to do.
        setting: Dotted key of the setting or name of the argument at fault, if any, or several
            separated by ", "; the command line names the option that sets it.
    """

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class DataError(CefitoError):
    """A data set is missing something, malformed or inconsistent."""


class ConfigError(CefitoError):
    """A setting or argument cannot be used."""


class RunError(CefitoError):
    """A run folder cannot be opened, continued or used as asked."""


class SamplingError(CefitoError):
    """A task cannot give as many distinct negatives as asked for."""


@contextmanager
def explained(
    place: object,
    complaint: str,
    remedy: str,
    *kinds: type[Exception],
    error: type[CefitoError] = DataError,
    setting: str = "",
    writes: bool = False,
) -> Iterator[None]:
    """Turn exceptions of some kinds into an `error`: "place: complaint (reason). remedy".

    The kinds are by default those of the file system, with ValueError for a NUL in a name. If
    memory ran out, MemoryError is raised instead.

    Args:
        place: File or other place, with which the message begins.
        complaint: What is wrong there.
        remedy: What the user can do.
        error: Class of the error that is raised.
        setting: Setting at fault.
        writes: Whether the work writes files; the remedy is then followed by `remedy_for`.
        kinds: Classes of the exceptions.
    """
    kinds = kinds or (OSError, ValueError)
    try:
        yield
    except kinds as problem:
        if is_out_of_memory(problem):
            raise MemoryError(f"{place}: {reason(problem)}") from problem
        advice = remedy_for(problem) if writes else ""
        parts = (f"{place}: {complaint} ({reason(problem)}).", remedy, advice)
        raise error(" ".join(filter(None, parts)), setting=setting) from problem


def first_error(problem: ValidationError) -> str:
    """Return place and complaint of the first of pydantic's errors."""
    first = problem.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {complaint(first)}" if place else complaint(first)


def complaint(error: Mapping[str, Any]) -> str:
    """Say in one clause what an error of pydantic expected, and what it found."""
    kind, value = error["type"], error["input"]
    facts = {
        name: int(fact) if isinstance(fact, float) and fact.is_integer() else fact
        for name, fact in error.get("ctx", {}).items()
    }
    own = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    said = _COMPLAINTS[kind].format(**facts) if kind in _COMPLAINTS else own
    several = isinstance(value, Mapping | list | tuple)
    if kind in _WITHOUT_VALUE or (kind == "value_error" and several):  # they do not fit each other
        return said
    return f"{said} (got {shown(value)})"


def shown(value: object) -> str:
    """Return a value for a message, shortened; None is not set."""
    if value is None:
        return "none"
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python does not print it
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, list | tuple | Mapping) and len(value) > 10:
        return f"{len(value):,} entries"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where cefito itself came from (PEP 610)."""
    came: Any = json.loads(distribution("cefito").read_text("direct_url.json") or "{}")
    url, option, source = came.get("url", ""), "", f"cefito[{extra}]"
    if "dir_info" in came:
        from urllib.request import url2pathname  # not light

        folder = url2pathname(urlsplit(url).path)
        if Path(folder).is_dir():
            option = "-e " if came["dir_info"].get("editable") else ""
            source = f"{folder}[{extra}]"
    elif url:
        if "vcs_info" in came:
            url = f"{came['vcs_info']['vcs']}+{url}@{came['vcs_info']['commit_id']}"
        fragment = f"#subdirectory={came['subdirectory']}" if "subdirectory" in came else ""
        source = f"{source} @ {url}{fragment}"
    return f"pip install {option}{shlex.quote(source)}"


def reason(problem: object) -> str:
    """Return the reason of another library's exception on one short line."""
    if isinstance(problem, CefitoError):
        problem = problem.__cause__ or problem
    problem = first_error(problem) if isinstance(problem, ValidationError) else problem
    text = " ".join(str(getattr(problem, "strerror", None) or problem).split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown[:200].rstrip(".") or type(problem).__name__


def remedy_for(problem: BaseException | None, default: str = "Choose another folder.") -> str:
    """Return the user's next step after an error of the operating system, as a sentence."""
    if isinstance(problem, CefitoError):
        problem = problem.__cause__
    number = problem.errno if isinstance(problem, OSError) else None
    return _REMEDIES.get(number or 0, default)


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error of Python, PyTorch or a library says that memory ran out."""
    return (
        isinstance(problem, MemoryError)
        or (isinstance(problem, OSError) and problem.errno == errno.ENOMEM)
        or any(words in str(problem).lower() for words in _OF_MEMORY)
    )
