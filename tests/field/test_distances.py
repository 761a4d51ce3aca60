"""Every distance of the registry is one that the fast evaluation of energies can use."""

from __future__ import annotations

import pytest
import torch

from cefito.field.settings import DISTANCES

TOY = "toy"


@pytest.fixture(params=[*DISTANCES, TOY])
def distance(request, monkeypatch) -> str:
    """The name of each distance, and of a toy one that is registered as any other is."""
    if request.param == TOY:
        monkeypatch.setitem(DISTANCES, TOY, lambda squared, dim: (squared / dim).log1p())
    return request.param


@pytest.mark.parametrize("observation_dim", [1, 24, 1536])
def test_it_never_falls_where_the_squared_distance_rises(distance, observation_dim):
    squared = torch.cat([torch.zeros(1), torch.logspace(-12, 6, 400, dtype=torch.float32)])
    found = DISTANCES[distance](squared, observation_dim)
    assert found.shape == squared.shape
    assert found.isfinite().all()
    assert (found.diff() >= 0).all()
    assert (found[squared > 1e-6].diff() > 0).all()  # and tells sequences apart


def test_it_has_a_gradient_everywhere(distance):
    squared = torch.tensor([[0.0, 1e-8], [1.0, 1e5]], requires_grad=True)
    (gradient,) = torch.autograd.grad(DISTANCES[distance](squared, 24).sum(), [squared])
    assert gradient.isfinite().all()
