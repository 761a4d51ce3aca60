"""Text in Markdown with escaped names, and counts in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_IN_MARKDOWN = str.maketrans(
    {sign: "\\" + sign for sign in "\\|*_`~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " "}
)


def percent(share: float | None) -> str:
    """Return a share in per cent; empty if it is unknown."""
    return "" if share is None else f"{100 * share:.1f} %"


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
