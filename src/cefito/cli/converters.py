"""Convert the values of options: numbers in plain decimal notation, and paths."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

if TYPE_CHECKING:
    from cyclopts import Token

__all__ = ["convert_option", "real_number", "whole_number"]

_DIGITS = 19  # maximum digits of a whole number: as many as a seed of 63 bits has
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SHOWN = 40


def convert_option(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the tokens of an option of type `kind`; a `cyclopts.Parameter.converter`."""
    from cyclopts import convert

    single = kind
    if get_origin(kind) in (Union, UnionType):  # an optional value
        others = [part for part in get_args(kind) if part is not type(None)]
        single = others[0] if len(others) == 1 else kind
    reader = {int: whole_number, float: real_number, Path: _path}.get(single)
    if reader is not None and isinstance(tokens, Sequence) and len(tokens) == 1:
        return reader(tokens[0].value)
    return convert(kind, tokens)


def _path(text: str) -> Path:
    if not text:
        raise ValueError("a file or folder without a name; expected a path.")
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{_quoted(text)} is not UTF-8, which records need. Rename it.")
    return Path(text)


def whole_number(text: str) -> int:
    """Read a whole number of decimal digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ValueError(f"{_quoted(text)} is not a whole number; expected one such as 3.")
    if len(text.strip().lstrip("+-").lstrip("0")) > _DIGITS:
        raise ValueError(f"{_quoted(text)} is too large a number.")
    return int(text)


def real_number(text: str) -> float:
    """Read a finite number in decimal notation."""
    if not _REAL.fullmatch(text.strip()):
        raise ValueError(f"{_quoted(text)} is not a number; expected one such as 0.5.")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_quoted(text)} is too large a number.")
    return value


def _quoted(text: str) -> str:
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
    return f"'{short}'"
