"""Text in Markdown and CSV with escaped names, counts in words, and vectors of names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_IN_MARKDOWN = str.maketrans(
    {sign: "\\" + sign for sign in "\\|*_`~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " "}
)


def percent(share: float | None) -> str:
    """Return a share in per cent; empty if it is unknown."""
    return "" if share is None else f"{100 * share:.1f} %"


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a count and its noun, as in "1 task" or "1,200 tasks".

    Args:
        count: Number of things.
        noun: Their name if there is one.
        several: Their name otherwise; by default the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Iterable[str], most: int) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    all_names = list(names)
    more = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more


def shortened(name: str, most: int) -> str:
    """Cut a name to at most `most` letters; "…" marks what is left out."""
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    """Return a table of escaped cells in Markdown; `numbers` aligns further columns right.

    Args:
        heads: Names of the columns.
        rows: Cells of each row.
        numbers: Align all columns but the first right.
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def in_markdown(text: str) -> str:
    """Escape text for a line or a cell of Markdown: emphasis, code, formulas, tags and links."""
    return text.translate(_IN_MARKDOWN).replace("](", "]\\(")


_FORMULA = re.compile("'*[=+@\uff1d\uff0b\uff0d\uff20\t\r\n-]")


def in_csv(text: str) -> str:
    """Put an apostrophe before text that spreadsheets take for a formula; `from_csv` removes it."""
    return f"'{text}" if _FORMULA.match(text) else text


def from_csv(cell: str) -> str:
    """Return the text of a cell without the apostrophe of `in_csv`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def plain(name: str) -> str:
    """Return a name in one line of characters that XML can hold."""
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())


def word_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return WordLlama's vectors of N texts, [N, 256]: means over their tokens, not normalised.

    Its package holds the numbers. Raises ImportError if it is not installed.
    """
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    import wordllama

    # its import made the root logger show all messages, those of cefito a second time
    root.handlers[:] = handlers
    root.setLevel(level)
    # downloads are looked for beside the package, which has both files
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    vectors: NDArray[np.float32] = model.embed(list(texts))
    return vectors
