"""Times as tables write them: seconds, or hours, minutes and seconds, with a point or a comma."""

from __future__ import annotations

import re

__all__ = ["decimal_sign", "seconds"]

_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?[.,][0-9]+")
_CLOCK = re.compile(r"(?:([0-9]+):)?([0-9]+):([0-9]{1,2}(?:[.,][0-9]*)?)")


def seconds(text: str) -> float:
    """The seconds that a text says: "43.27", "43,27", "00:43.27" or "1:02:03,5".

    Raises:
        ValueError: It says no time; also where it has signs between thousands, or 60 seconds or
            minutes and more behind a colon.
    """
    if _NUMBER.fullmatch(text):
        return float(text.replace(",", "."))
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        raise ValueError(f"{text!r} is no time")
    hours, minutes, rest = clock[1], int(clock[2]), float(clock[3].replace(",", "."))
    if rest >= 60 or (hours is not None and minutes >= 60):
        raise ValueError(f"{text!r} has 60 seconds or minutes behind a colon")
    return 3600.0 * int(hours or 0) + 60.0 * minutes + rest


def decimal_sign(text: str) -> str:
    """What stands before the decimals of a time: a point, a comma, or nothing."""
    return next((sign for sign in ".," if sign in text), "")
