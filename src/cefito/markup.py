"""HTML for notebooks, text in Markdown with escaped names, and counts in words.

The HTML has no scripts. Its inline styles inherit the text's colour, so that they do not leak into
the page and work with dark themes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

MOST = 50
"""Maximum lines of a table."""
_CELL = "padding:.15em .7em;text-align:left;vertical-align:top;color:inherit;background:transparent"
_IN_MARKDOWN = str.maketrans(
    {sign: "\\" + sign for sign in "\\|*_`~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " "}
)


def percent(share: float | None) -> str:
    """Return a share in per cent; empty if it is unknown."""
    return "" if share is None else f"{100 * share:.1f} %"


@dataclass(frozen=True)
class Folded:
    """A table that unfolds at a click on its title, showing at most `MOST` rows."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    open: bool = False


def card(title: str, facts: Mapping[str, object], tables: Sequence[Folded] = ()) -> str:
    """Return HTML of a title, facts by name, and folded tables."""
    return (
        '<div style="color:inherit;border:1px solid;border-color:rgba(128,128,128,.5);'
        'border-radius:.4em;padding:.5em .8em;max-width:60em;overflow-x:auto">'
        f"<strong>{_text(title)}</strong>{_table((), list(facts.items()))}"
        f"{''.join(map(_folded, tables))}</div>"
    )


def _folded(table: Folded) -> str:
    rest = len(table.rows) - MOST
    more = f"<p>and {rest:,} more</p>" if rest > 0 else ""
    return (
        f"<details{' open' if table.open else ''}><summary>{_text(table.title)}</summary>"
        f"{_table(table.heads, table.rows[:MOST])}{more}</details>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_text(value)}</td>' for value in row) + "</tr>"
        for row in rows
    )
    return (
        '<table style="border-collapse:collapse;color:inherit;margin:.3em 0">'
        + (f"<thead><tr>{head}</tr></thead>" if heads else "")
        + f"<tbody>{body}</tbody></table>"
    )


def _text(value: object) -> str:
    return escape(f"{value:,}" if type(value) is int else str(value))


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a count and its noun, as in "1 task" or "1,200 tasks"."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Iterable[str], most: int) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    """Return a table of escaped cells in Markdown; `numbers` aligns further columns right."""
    rule = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def in_markdown(text: str) -> str:
    """Escape text for a line or a cell of Markdown: emphasis, code, formulas, tags and links."""
    return text.translate(_IN_MARKDOWN).replace("](", "]\\(")
