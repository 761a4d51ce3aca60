"""Settings of the search that are changed for one call, and names for what was changed."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from cefito.errors import ConfigError
from cefito.training.config import SearchConfig

__all__ = ["changed_settings", "option_name", "search_settings"]

_OPTIONS = {"method": "search", "budget_gflop": "budget"}


def option_name(setting: str) -> str:
    """What a setting of `SearchConfig` is called on the command line, without dashes in front.

    "prior-weight".
    """
    return _OPTIONS.get(setting, setting).replace("_", "-")


def search_settings(config: SearchConfig, **overrides: Any) -> SearchConfig:
    """Settings with some of them replaced.

    Args:
        config: Settings to begin with, such as those of a run.
        overrides: Values by the name of the setting; None keeps what there is.

    Raises:
        ConfigError: An unknown setting or a value that it cannot have; the message names the
            option.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"--{option_name(name)} {value}: expected a finite number.")
    try:
        return SearchConfig.model_validate({**config.model_dump(), **given})
    except ValidationError as problem:
        first = problem.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "search"
        raise ConfigError(f"--{option_name(name)} {first['input']}: {first['msg']}.") from problem


def changed_settings(config: SearchConfig, own: SearchConfig) -> list[str]:
    """The settings in which a configuration differs from another one.

    As "option value" in the order of the fields.

    Args:
        config: The settings in use.
        own: Those that are not worth telling.
    """
    before = own.model_dump()
    return [
        f"{option_name(name)} {_plain(value)}"
        for name, value in config.model_dump().items()
        if value != before[name]
    ]


def _plain(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
