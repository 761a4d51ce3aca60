"""Text as people write it: one form of every letter, and names without what the eye skips."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["folded", "nfc"]


def nfc(text: str) -> str:
    """The text in Unicode's normal form C, so that what looks the same is the same.

    "é" may be written as one letter or as an e with an accent; Apple's file names are the latter.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """A name without case, punctuation and repeated spaces, to compare names by."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.findall(r"\w+", letters.replace("_", " ")))
