"""Text of annotations: its normal forms, and refusals of what cannot be read or parsed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cefito.arrays import check_regular
from cefito.errors import DataError

__all__ = ["folded", "nfc", "parsing", "read_text"]


def read_text(path: Path, remedy: str, encoding: str = "utf-8") -> str:
    """Read a text file; `remedy` ends the message if that fails."""
    check_regular(path, remedy)
    try:
        return path.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path}: cannot be read ({problem}). {remedy}") from problem


@contextmanager
def parsing(place: str, kind: str, expected: str) -> Iterator[None]:
    """Refuse JSON with missing keys or wrong types, read at a place that should hold a kind."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as problem:
        raise DataError(f"{place}: not {kind} ({problem!r}). {expected}") from problem


def nfc(text: str) -> str:
    """Convert to Unicode's normal form C, where "é" is one letter (two in Apple's file names)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """A name without case, punctuation and repeated spaces, to compare names by."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))
