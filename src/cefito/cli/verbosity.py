"""Verbosity of commands: `--verbose` and `--quiet`, anywhere on the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from cefito.errors import ConfigError

__all__ = ["VOLUMES", "Volume", "at_volume", "split_volume", "volume"]


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
    given = {word for word in argv[:end] if word in VOLUMES}
    if len(given) > 1:
        raise ConfigError("--verbose --quiet: expected one of them.")
    rest = [word for word in argv[:end] if word not in VOLUMES]
    return [*rest, *argv[end:]], VOLUMES[given.pop()] if given else Volume.NORMAL
