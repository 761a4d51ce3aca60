"""A table, as it is shown and written."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NONE", "Entry", "Table", "signed"]

NONE = "–"
"""What stands where there is nothing to show."""


@dataclass(frozen=True)
class Entry:
    """A cell of a table.

    Attributes:
        text: What stands there.
        rank: 1 for the best of its column, 2 for the second best, else 0.
    """

    text: str
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: What stands above it.
        heads: Heads of the columns.
        lines: Its lines.
        below: How many of the lines stand below the rule.
        notes: What stands below it.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    below: int = 0
    notes: tuple[str, ...] = ()


def signed(value: float) -> str:
    """A number with its sign, to two digits."""
    return f"{round(value, 2) + 0.0:+.2f}"  # never -0.00
