"""Small settings of a method, and fits by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cefito.planners.methods import find_method, load_config
from cefito.training.trainer import TrainingContext


def small_method(
    method: str, values: Mapping[str, Any], *, preset: str = "small", section: str = ""
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function that gives settings, and one that fits the method on (train, val).

    Both take changes of `values` as keywords; keys are those of a section, if there is one.
    """

    def settings(**changes: Any) -> Any:
        keys = {f"{section}.{key}" if section else key: v for key, v in (values | changes).items()}
        return load_config(preset, method=method, overrides=keys).settings

    def fit(windows: Any, *, context: TrainingContext = TrainingContext(), **changes: Any) -> Any:
        kind: Any = find_method(method).planner
        return kind.fit(*windows, settings=settings(**changes), seed=0, context=context)

    return settings, fit
