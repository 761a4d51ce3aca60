"""Parts of a run that are opened when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

Opened = TypeVar("Opened")


class Opening(Generic[Opened]):
    """Opens a part once, in whichever thread uses it first; a failure is raised by each use.

    Args:
        read: Returns the part.
    """

    def __init__(self, read: Callable[[], Opened]) -> None:
        self._read: Callable[[], Opened] | None = read
        self._lock = Lock()
        self._part: Opened

    def __call__(self) -> Opened:
        """Return the part."""
        with self._lock:
            if self._read is not None:
                self._part = self._read()
                self._read = None  # what it was read from is no longer kept
        return self._part


class Part(Generic[Opened]):
    """A field of a dataclass that holds a part, or its `Opening` until it is used.

    `vars` of an object give the field as it is held.

    Args:
        default: Its default, of which there may be one at most.
    """

    def __init__(self, *default: Opened) -> None:
        self._default = default

    def __set_name__(self, kind: type, name: str) -> None:
        """Keep the name of the field."""
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Opened:
        """Return the part, opened."""
        if owner is None:
            if not self._default:
                raise AttributeError(self._name)
            return self._default[0]
        held: Opened | Opening[Opened] = vars(owner)[self._name]
        return held() if isinstance(held, Opening) else held

    def __set__(self, owner: Any, part: Opened | Opening[Opened]) -> None:
        """Hold a part."""
        vars(owner)[self._name] = part
