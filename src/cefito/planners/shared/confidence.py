"""Calibration of the probability of the best plan."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["confident_temperature"]

_SPREAD = 0.3  # standard deviation of the prior of the temperature's logarithm
_SUREST = 1 - 1e-9


def confident_temperature(
    sure: Callable[[float], NDArray[np.float64]],
    right: NDArray[np.bool_],
    *,
    videos: int,
    centre: float = 1.0,
    lowest: float = 0.25,
    highest: float = 8.0,
) -> float:
    """Fit the temperature under which the best plan's probability is how often it is right.

    Maximises the log-likelihood of `right` [N] under `sure` at a temperature [N], with a video as
    one observation. The logarithm of the temperature is shrunk towards log(centre).
    """
    from scipy.optimize import minimize_scalar

    if not len(right):
        return centre

    def loss(log_temperature: float) -> float:
        probability = sure(math.exp(log_temperature)).clip(1 - _SUREST, _SUREST)
        misfit = -float(np.log(np.where(right, probability, 1 - probability)).mean())
        return videos * misfit + (log_temperature - math.log(centre)) ** 2 / (2 * _SPREAD**2)

    found = minimize_scalar(
        loss,
        bounds=(math.log(lowest), math.log(highest)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(float(found.x))
