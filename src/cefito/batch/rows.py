"""What stands in one place of a source of queries, and sources as everything else sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = ["COLUMNS", "EXPECTED", "PIECE", "Row", "Source"]

PIECE = 64
"""Queries that are planned together: always those of the same places of the source.

What a planner computes for a query differs in its last bits with the queries beside it; so which
these are must not depend on how the work is shared out.
"""
COLUMNS = ("id", "features", "start", "end", "initial", "goal", "task", "constraints")
"""What a query can say."""
EXPECTED = (
    "Expected features, start and end, or initial and goal, and id if you like, in each line."
)


@dataclass(frozen=True)
class Row:
    """What stands in one place of a source.

    Attributes:
        number: Its line, or which one it is, counted from 1.
        place: Where it stands, for messages.
        value: What stands there, by name; what is no query is refused later.
        name: What the query is called unless it says so itself.
        problem: Why nothing can be read there; empty where it can.
    """

    number: int
    place: str
    value: Any = field(default_factory=dict)
    name: str = ""
    problem: str = ""

    @property
    def id(self) -> str:
        """What it is called: as it says, if that can be told, otherwise its name."""
        given = self.value.get("id") if isinstance(self.value, Mapping) else None
        return str(given) if isinstance(given, str | int) else self.name


class Source(Protocol):
    """Where queries stand: looked through when it is opened, then read piece by piece.

    It travels to other processes.
    """

    @property
    def path(self) -> Path:
        """What was opened."""

    @property
    def folder(self) -> Path:
        """From where the files that rows name are found."""

    @property
    def identity(self) -> dict[str, str | int]:
        """What tells whether it is still the same, for records."""

    def __len__(self) -> int:
        """How many queries."""

    def rows(self, first: int, count: int) -> Iterator[Row]:
        """Some rows in their order.

        Args:
            first: The first one, counted from 0; a multiple of `PIECE`.
            count: How many; fewer where it ends before.

        Raises:
            DataError: It cannot be read any more, or has changed since it was opened.
        """
