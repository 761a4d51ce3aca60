"""Distances between predicted and observed goals (paper, Eqs. 1 and 4).

A distance is a non-decreasing function of the squared L2 distance and of the dimension E. The fast
evaluation of energies depends on this: it never computes a predicted goal in E dimensions, only its
squared distance from the observed one (`reduced_distance`). To add a distance, register it in
`DISTANCES`: `FieldConfig.distance` then accepts its name, and the tests check it.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["DISTANCES", "Distance", "l2", "mean_square"]

Distance = Callable[[Tensor, int], Tensor]
"""Squared L2 distances, of any shape, and E → distances of the same shape."""

_LEAST = 1e-12  # lower bound of the radicand, which bounds the gradient of the root


def l2(squared: Tensor, observation_dim: int) -> Tensor:  # noqa: ARG001
    """Return the L2 distance ‖p − g‖ (paper, Eq. 4)."""
    return squared.clamp_min(_LEAST).sqrt()


def mean_square(squared: Tensor, observation_dim: int) -> Tensor:
    """Return ‖p − g‖² / E (released code)."""
    return squared / observation_dim


DISTANCES: dict[str, Distance] = {"l2": l2, "mean_square": mean_square}
"""All distances by the names that `FieldConfig.distance` takes."""
