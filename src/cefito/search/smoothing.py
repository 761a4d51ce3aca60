"""Order and smoothing of n-grams, chosen by the likelihood of validation windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cefito.search.ngrams import Ids, Levels, Strengths

__all__ = ["DEFAULT_ORDER", "DEFAULT_STRENGTHS", "GRID", "chosen_smoothing"]

DEFAULT_ORDER = 3
DEFAULT_STRENGTHS = (3.0, 10.0, 10.0)
GRID = (0.3, 1.0, 3.0, 10.0, 30.0)


def chosen_smoothing(
    levels: Levels, sequences: Ids, tasks: Ids, *, orders: Sequence[int], grid: Sequence[float]
) -> tuple[int, Strengths]:
    """Return the order and strengths of the highest mean log-likelihood of sequences.

    For each order the strengths are improved one by one, from the defaults, until none changes.
    Ties go to the lower order and to the value met first.
    """
    # sequences of validation windows [M, T], whose tasks are [M]; without any the defaults stay
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
