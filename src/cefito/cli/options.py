"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from cefito.errors import ConfigError

__all__ = ["Flag", "Settings", "Several", "horizons", "options_class", "pairs", "settings"]

Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value."""

Several = Annotated[
    tuple[str, ...], Parameter(negative="", consume_multiple=False, show_default=False)
]
"""An option that may be repeated."""

Settings = Annotated[tuple[str, ...], Parameter(name="--set", negative="", consume_multiple=False)]
"""Changes of settings, as `settings` reads them."""


def options_class(base: type, options: Iterable[tuple[str, Any, Any]]) -> Any:
    """Return a class of options, a frozen dataclass, with further fields: name, type, default."""
    made = make_dataclass(
        base.__name__,
        options,
        bases=(base,),
        namespace={"__module__": base.__module__, "__doc__": base.__doc__},
        frozen=True,
        kw_only=True,
    )
    return Parameter(name="*")(made)


def settings(given: Sequence[str]) -> dict[str, str]:
    """Parse the entries of `--set`: values by dotted key."""
    return pairs("--set", given, "KEY=VALUE, as in --set training.optimiser.epochs=20")


def pairs(option: str, given: Sequence[str], expected: str) -> dict[str, str]:
    """Parse the entries of an option of the form KEY=VALUE: values by key."""
    values = {}
    for entry in given:
        key, sign, value = entry.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"{option} {entry}: expected {expected}.")
        values[key.strip()] = value.strip()
    return values


def horizons(text: str, option: str = "--horizon") -> tuple[int, ...]:
    """Parse horizons such as "3" or "3,4,5"."""
    parts = [part.strip() for part in text.split(",")]
    distinct = len(set(parts)) == len(parts)
    if not distinct or not all(re.fullmatch(r"[1-9][0-9]{0,3}", part) for part in parts):
        raise ConfigError(
            f"{option} {text[:40]}: expected a positive number of actions, or several different "
            "ones with commas between, as in 3,4,5."
        )
    return tuple(map(int, parts))
