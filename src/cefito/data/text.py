"""Normal forms of text: one encoding of every letter, and names reduced for comparison."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["folded", "nfc"]


def nfc(text: str) -> str:
    """Convert to Unicode's normal form C, where "é" is one letter (two in Apple's file names)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """A name without case, punctuation and repeated spaces, to compare names by."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))
