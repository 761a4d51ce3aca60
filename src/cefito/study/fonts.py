"""Names in any script: fonts that are installed, found by what they cover, or one note.

The font that comes with matplotlib covers Latin, Greek and Cyrillic. What it lacks is taken from
other fonts of the machine; what none has is drawn as boxes, and said once.
"""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["covering", "readable", "scripts"]

logger = logging.getLogger(__name__)


@contextmanager
def readable(figure: Any) -> Iterator[None]:
    """Give all texts of a figure fonts that have their letters, while it is saved.

    Args:
        figure: A matplotlib figure, whose texts are all there.
    """
    from matplotlib import font_manager
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if text.get_text()]
    wanted = {letter for text in texts for letter in text.get_text() if not letter.isspace()}
    missing = wanted - _letters(font_manager.findfont(font_manager.FontProperties()))
    families: list[str] = []
    if missing:
        families, missing = covering(missing, _families())
    for text in texts if families else []:
        text.set_fontfamily([*text.get_fontfamily(), *families])
    if missing:
        logger.warning(
            "no font here has the letters of %s: they are boxes in the picture. Install one that "
            "has them (Noto, say) and draw it again.",
            ", ".join(scripts(missing)),
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def covering(
    wanted: Iterable[str], families: Mapping[str, frozenset[str]]
) -> tuple[list[str], set[str]]:
    """Few font families that together have as many of the letters as there are to be had.

    Args:
        wanted: The letters.
        families: Letters of each family.

    Returns:
        The families, the one that has the most first, and the letters that none has.
    """
    missing, chosen = set(wanted), []
    while missing:
        best = max(sorted(families), key=lambda name: len(missing & families[name]), default="")
        if not best or not missing & families[best]:
            break
        chosen.append(best)
        missing -= families[best]
    return chosen, missing


def scripts(letters: Iterable[str]) -> list[str]:
    """The scripts that letters belong to, as their names in Unicode begin; others are symbols."""
    found = set()
    for letter in letters:
        name = unicodedata.name(letter, "")
        known = name and unicodedata.category(letter)[0] in "LM"
        found.add(name.split()[0].capitalize() if known else "symbols")
    return sorted("CJK" if script == "Cjk" else script for script in found)


@cache
def _families() -> Mapping[str, frozenset[str]]:
    """Letters of all upright families that are installed."""
    from matplotlib import font_manager

    found: dict[str, frozenset[str]] = {}
    for entry in font_manager.fontManager.ttflist:
        if entry.style == "normal" and entry.name not in found:
            found[entry.name] = _letters(entry.fname)
    return found


@cache
def _letters(path: str) -> frozenset[str]:
    """The letters that a font file has; none where it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError, ValueError):
        return frozenset()
