"""Every distance of the registry is one that the fast evaluation of energies can use."""

from __future__ import annotations

import itertools

import pytest
import torch

from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.field.settings import DISTANCES
from random_fields import random_field

TOY = "toy"


@pytest.fixture(params=[*DISTANCES, TOY])
def distance(request, monkeypatch) -> str:
    """The name of each distance, and of a toy one that is registered as any other is."""
    if request.param == TOY:
        monkeypatch.setitem(DISTANCES, TOY, lambda squared, dim: (squared / dim).log1p())
    return request.param


def make(distance: str) -> EnergyField:
    return random_field(5, actions=5, distance=distance).eval()


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


def test_all_evaluations_agree_and_the_distance_is_in_the_energy(distance):
    field, generator = make(distance), torch.Generator().manual_seed(1)
    initial, goal = torch.randn(2, 2, 24, generator=generator)
    sequences = torch.tensor(list(itertools.product(range(5), repeat=3)))
    with torch.no_grad():
        predicted = field.predictor.goal(initial.repeat_interleave(125, 0), sequences.repeat(2, 1))
        squared = (predicted - field.target(goal).repeat_interleave(125, 0)).square().sum(dim=-1)
        expected = DISTANCES[distance](squared, 24).view(2, 125)
        packed = field.candidate_energies(initial, goal, sequences.expand(2, -1, -1))
    torch.testing.assert_close(packed, expected, rtol=1e-5, atol=1e-6)
    incremental, actions = IncrementalField(field), torch.arange(5)
    prefixes = incremental.root(initial, goal)
    for _ in range(2):
        prefixes = incremental.extend(prefixes, actions)
    walked = incremental.leaf_energy(prefixes, actions).view(2, 125)
    torch.testing.assert_close(walked, expected, rtol=1e-5, atol=1e-6)
