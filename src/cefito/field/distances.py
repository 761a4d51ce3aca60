"""Distances between the goal that a sequence leads to and the observed one (paper, Eqs. 1 and 4).

A distance is given the squared L2 distance of the two and their dimension E, nothing else, and must
not fall where the squared L2 rises. The fast evaluation of an energy depends on this: it never sees
a predicted goal in E dimensions, only how far it lies from the observed one (`reach`). To add a
distance, register it in `DISTANCES`; a setting may then name it, and the tests hold it to this.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["DISTANCES", "Distance", "l2", "mean_square"]

Distance = Callable[[Tensor, int], Tensor]
"""Squared L2 distances, of any shape, and E → distances of the same shape."""

_LEAST = 1e-12  # below it a root has no useful gradient


def l2(squared: Tensor, observation_dim: int) -> Tensor:  # noqa: ARG001
    """The L2 distance (paper, Eq. 4)."""
    return squared.clamp_min(_LEAST).sqrt()


def mean_square(squared: Tensor, observation_dim: int) -> Tensor:
    """The mean over the features of the squared difference (released code)."""
    return squared / observation_dim


DISTANCES: dict[str, Distance] = {"l2": l2, "mean_square": mean_square}
"""All distances by the names that `FieldConfig.distance` takes. New ones are added here only."""
