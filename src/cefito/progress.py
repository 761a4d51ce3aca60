"""How long work tells how far it is.

The library calls, whoever shows it (a terminal, a page, nobody) implements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Advance", "Progress", "silent"]


class Advance(Protocol):
    """Reports that work was done."""

    def __call__(self, count: float = 1, *, note: str = "") -> None:
        """Add `count` to the work done; `note` (a loss.

        Say) stands behind the bar until the next one.
        """


class Progress(Protocol):
    """Shows a work of `total` pieces while the context is open."""

    def __call__(
        self, description: str, *, total: int | None = None
    ) -> AbstractContextManager[Advance]:
        """Begin a work; its pieces are reported by the function that the context gives."""


@contextmanager
def silent(description: str, *, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG001
    """Show nothing."""

    def advance(count: float = 1, *, note: str = "") -> None:
        pass

    yield advance
