import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.field import energy as energy_module
from cefito.field.prefixes import PrefixTree, prefix_counts
from cefito.field.settings import DISTANCES
from drawn import drawn
from random_fields import random_field

E = 10


make = partial(random_field, observation_dim=E, actions=4)


def observations(batch: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(drawn(2, batch, E, seed=seed))


def candidates(seed: int, batch: int, count: int, horizon: int, actions: int) -> torch.Tensor:
    """Distinct random sequences [B, M, T] in random order; M is `count`, or all there are."""
    generator = np.random.default_rng(seed)
    everything = np.array(list(itertools.product(range(actions), repeat=horizon)))
    return torch.from_numpy(
        np.stack([generator.permutation(everything)[:count] for _ in range(batch)])
    )


@pytest.mark.parametrize("normalisation", ["layer", "unit"])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("distance", ["l2", "mean_square"])
def test_distance_by_hand(distance, centre, normalisation):
    field = make(distance=distance, centre=centre, normalisation=normalisation)
    initial, goal = observations(5)
    actions = torch.randint(4, (5, 3), generator=torch.Generator().manual_seed(2))
    assert bool(field.mean.any()) == centre
    mean = field.mean.numpy().astype(np.float64)
    predicted = field.predictor.goal(initial - field.mean, actions).detach().double().numpy()
    centred = goal.numpy() - mean
    if normalisation == "unit":
        target = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    else:
        target = (centred - centred.mean(axis=1, keepdims=True)) / np.sqrt(
            centred.var(axis=1, keepdims=True) + 1e-5
        )
    squared = ((predicted - target) ** 2).sum(axis=1)
    expected = np.sqrt(squared) if distance == "l2" else squared / E
    found = field.energy(initial, goal, actions).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


fields = st.builds(
    make,
    st.integers(0, 10_000),
    horizon=st.integers(1, 5),
    actions=st.integers(1, 4),
    depth=st.integers(1, 3),
    distance=st.sampled_from(sorted(DISTANCES)),
    normalisation=st.sampled_from(["layer", "unit"]),
    skip=st.booleans(),
)


@given(field=fields, seed=st.integers(0, 1000), count=st.integers(1, 12), batch=st.integers(1, 3))
def test_candidates_have_the_energies_and_gradients_of_the_plain_evaluation(
    field, seed, count, batch
):
    rows = candidates(seed, batch, count, field.horizon, field.predictor.action_count)
    count = rows.shape[1]
    initial, goal = observations(batch, seed)
    weight = torch.randn(batch, count, generator=torch.Generator().manual_seed(seed))
    fast = field.candidate_energies(initial, goal, rows)
    slow = field.energy(
        initial.repeat_interleave(count, dim=0),
        goal.repeat_interleave(count, dim=0),
        rows.flatten(0, 1),
    ).view(batch, count)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    trained = [
        parameter
        for name, parameter in field.named_parameters()
        if "action_mask" not in name and "action_head" not in name
    ]
    for ours, theirs in zip(
        torch.autograd.grad((fast * weight).sum(), trained),
        torch.autograd.grad((slow * weight).sum(), trained),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def gradients(field, *given, **options):
    """Energies, and the gradient of the sum of their squares by every parameter."""
    field.zero_grad()
    energies = field.candidate_energies(*given, **options)
    energies.square().sum().backward()
    return energies.detach(), [
        one.grad.clone() for one in field.parameters() if one.grad is not None
    ]


def test_queries_of_about_one_size_are_packed_together(monkeypatch):
    field, actions = make(), candidates(3, 7, 9, 3, 4)
    whole, slopes = gradients(field, *observations(7), actions)
    packed = []
    build = PrefixTree.build
    monkeypatch.setattr(energy_module, "TOGETHER", 2)
    monkeypatch.setattr(
        PrefixTree, "build", lambda given, **more: packed.append(build(given, **more)) or packed[-1]
    )
    parted, parted_slopes = gradients(field, *observations(7), actions)
    torch.testing.assert_close(parted, whole)
    for ours, theirs in zip(parted_slopes, slopes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    counts = [prefix_counts(tree_actions(tree), action_count=4) for tree in packed]
    assert [len(part) for part in counts] == [2, 2, 2, 1]
    assert torch.cat(counts).tolist() == sorted(torch.cat(counts).tolist())


def tree_actions(tree):
    """The candidates of a tree, in sorted order, [B, M, T]."""
    path = tree.ancestors[-1]
    return torch.stack(
        [level.gather(1, path[..., index]) for index, level in enumerate(tree.actions)], dim=-1
    )


def test_energies_in_bfloat16_are_near_those_in_float32():
    field, actions = make(), candidates(3, 5, 12, 3, 4)
    exact, slopes = gradients(field, *observations(5), actions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        energies = field.candidate_energies(*observations(5), actions)
    assert energies.dtype == torch.float32
    torch.testing.assert_close(energies, exact, rtol=0.03, atol=0.03)
    field.zero_grad()
    energies.square().sum().backward()
    for ours, theirs in zip(
        [p.grad for p in field.parameters() if p.grad is not None], slopes, strict=True
    ):
        assert ours.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.98


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
