"""How far n-grams look back and how strongly they are smoothed, chosen by validation windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cefito.errors import ConfigError
from cefito.search.ngrams import Ids, Levels, Strengths

__all__ = ["DEFAULT_ORDER", "DEFAULT_STRENGTHS", "GRID", "check_choices", "chosen_smoothing"]

DEFAULT_ORDER = 3
DEFAULT_STRENGTHS = (3.0, 10.0, 10.0)
GRID = (0.3, 1.0, 3.0, 10.0, 30.0)


def check_choices(orders: Sequence[int], grid: Sequence[float]) -> None:
    """Refuse orders and strengths among which nothing can be chosen.

    Raises:
        ConfigError: None at all, or one that the formulas do not have.
    """
    if (
        not orders
        or not set(orders) <= {1, 2, 3}
        or not grid
        or not all(0 < value < np.inf for value in grid)
    ):
        raise ConfigError(
            f"prior: cannot choose from orders {list(orders)} and strengths {list(grid)}; "
            "expected one or more of 1, 2, 3 and one or more positive numbers."
        )


def chosen_smoothing(
    levels: Levels, sequences: Ids, tasks: Ids, *, orders: Sequence[int], grid: Sequence[float]
) -> tuple[int, Strengths]:
    """Order and strengths under which sequences have the highest mean log-likelihood.

    For each order the strengths are improved one by one, from the defaults, until none changes.
    Ties go to the lower order and to the value met first.

    Args:
        levels: The formulas with their counts; their own order and strengths do not matter.
        sequences: Allowed actions of validation windows [M, T]. Without any the defaults stay.
        tasks: Their tasks [M].
        orders: Orders to choose from.
        grid: Strengths to choose from.
    """
    if not len(sequences):
        return DEFAULT_ORDER if DEFAULT_ORDER in orders else max(orders), DEFAULT_STRENGTHS

    def likelihood(order: int, strengths: Strengths) -> float:
        smoothed = replace(levels, order=order, strengths=strengths)
        return float(smoothed.log_probability(sequences, tasks).mean())

    best, chosen = -np.inf, (DEFAULT_ORDER, DEFAULT_STRENGTHS)
    for order in sorted(orders):
        strengths, highest = DEFAULT_STRENGTHS, likelihood(order, DEFAULT_STRENGTHS)
        improved = True
        while improved:
            improved = False
            for level in range(order):
                for value in grid:
                    other: Any = (*strengths[:level], value, *strengths[level + 1 :])
                    if (reached := likelihood(order, other)) > highest:
                        strengths, highest, improved = other, reached, True
        if highest > best:
            best, chosen = highest, (order, strengths)
    return chosen
