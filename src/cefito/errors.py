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

__all__ = ["CefitoError", "ConfigError", "DataError", "RunError", "SamplingError"]


class CefitoError(Exception):
    """Base of all errors that a user can act on.

    Args:
        message: What was found, where, and what to do.
        setting: Dotted key of the setting or name of the argument at fault, if any; the command
            line names the option that sets it.
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
