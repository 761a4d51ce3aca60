"""Times as people and tools write them: the one parser of all tables and options."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Annotated, Any

from pydantic import BeforeValidator

TIME_FORMS = "Expected seconds (43.27 or 43,27) or hours, minutes and seconds (1:02:03.5)."
"""Remedy of messages about times."""
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?[.,][0-9]+")
_CLOCK = re.compile(r"(?:([0-9]+):(?=[0-5]?[0-9]:))?([0-9]+):([0-5]?[0-9](?:[.,][0-9]*)?)")
_LONGEST = 40  # characters


def parse_seconds(text: str) -> float:
    """Return the seconds of a time: "43.27", "43,27", "0:30", "00:43.27" or "1:02:03,5".

    Raises:
        ValueError: The text is not a time.
    """
    written = text.strip()
    number = clock = None
    if len(written) <= _LONGEST:
        number, clock = _NUMBER.fullmatch(written), _CLOCK.fullmatch(written)
    if clock is not None:
        hours, minutes, seconds = clock.groups()
        return 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds.replace(",", "."))
    value = math.inf if number is None else float(written.replace(",", "."))
    if not math.isfinite(value):
        raise ValueError(f"{written[:_LONGEST]!r} is not a time")
    return value


def as_seconds(value: Any) -> float:
    """Return the seconds of a number, or of a time as text; a truth value is none.

    Raises:
        ValueError: The value is not a time.
    """
    if isinstance(value, str):
        return parse_seconds(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{str(value)[:_LONGEST]!r} is not a time")
    return float(value)


Seconds = Annotated[float, BeforeValidator(as_seconds)]
"""Type of seconds in settings, requests and files, which may be written as times."""
