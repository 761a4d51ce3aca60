"""How much a command says beside its results: `--verbose` and `--quiet`, anywhere on the line.

Results go to stdout, errors to stderr, however loud it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from cefito.errors import ConfigError

__all__ = ["VOLUMES", "Volume", "at_volume", "split_volume", "volume"]


class Volume(IntEnum):
    """How much is said."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


VOLUMES = {"--verbose": Volume.VERBOSE, "--quiet": Volume.QUIET}
"""The options that set it, which every command has."""

_current = Volume.NORMAL  # of the process, so that its threads keep to it


def volume() -> Volume:
    """How much is to be said now."""
    return _current


@contextmanager
def at_volume(chosen: Volume) -> Iterator[None]:
    """Say so much while the context is open."""
    global _current
    before, _current = _current, chosen
    try:
        yield
    finally:
        _current = before


def split_volume(argv: Sequence[str]) -> tuple[list[str], Volume]:
    """The arguments without the options of the volume, and what these say.

    What stands behind "--" is left alone.

    Raises:
        ConfigError: Both are given.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    given = {word for word in argv[:end] if word in VOLUMES}
    if len(given) > 1:
        raise ConfigError("--verbose --quiet: expected one of them.")
    rest = [word for word in argv[:end] if word not in VOLUMES]
    return [*rest, *argv[end:]], VOLUMES[given.pop()] if given else Volume.NORMAL
