import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.field import EnergyField, FieldConfig
from cefito.field.distances import DISTANCES
from cefito.field.predictor import Dropout
from cefito.field.prefixes import PrefixTree

E = 10


def make(
    seed: int = 0, *, horizon: int = 3, actions: int = 4, skip: bool = False, **settings: object
) -> EnergyField:
    """A field whose every parameter is random and matters."""
    config = FieldConfig(
        **{
            "width": 16,
            "depth": 2,
            "heads": 2,
            "mlp_ratio": 2,
            "action_dim": 6,
            "goal_skip": skip,
            "action_encoding": "observed" if skip else "auto",
            **settings,
        }
    )
    generator = torch.Generator().manual_seed(seed)
    field = EnergyField(
        config=config,
        observation_dim=E,
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.randn(actions, E, generator=generator) if skip else None,
    )
    field.reset(generator, mean=torch.randn(E, generator=generator))
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator)
                * max(parameter.shape, default=1) ** -0.5
            )
    return field


def observations(batch: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, E, generator=generator), torch.randn(batch, E, generator=generator)


def candidates(seed: int, batch: int, count: int, horizon: int, actions: int) -> torch.Tensor:
    """Distinct random sequences [B, M, T] in random order; M is `count`, or all there are."""
    generator = np.random.default_rng(seed)
    everything = np.array(list(itertools.product(range(actions), repeat=horizon)))
    return torch.from_numpy(
        np.stack([generator.permutation(everything)[:count] for _ in range(batch)])
    )


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("distance", ["l2", "mean_square"])
def test_distance_by_hand(distance, centre):
    field = make(distance=distance, centre=centre)
    initial, goal = observations(5)
    actions = torch.randint(4, (5, 3), generator=torch.Generator().manual_seed(2))
    assert bool(field.mean.any()) == centre
    mean = field.mean.numpy().astype(np.float64)
    predicted = (
        field.predictor.goal(initial - field.mean, actions).detach().numpy().astype(np.float64)
    )
    centred = goal.numpy() - mean
    target = (centred - centred.mean(axis=1, keepdims=True)) / np.sqrt(
        centred.var(axis=1, keepdims=True) + 1e-5
    )
    squared = ((predicted - target) ** 2).sum(axis=1)
    expected = np.sqrt(squared) if distance == "l2" else squared / E
    np.testing.assert_allclose(
        field.energy(initial, goal, actions).detach().numpy(), expected, rtol=1e-5
    )


def test_observations_are_normalised():
    field = make()
    initial, goal = observations(3)
    actions = torch.tensor([[0, 1, 2]]).expand(3, -1)
    torch.testing.assert_close(
        field.energy(initial, goal, actions),
        field.energy(5 * initial + 2, 3 * goal - 1, actions),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_new_goal_projection_is_the_identity():
    plain, projected = make(), make(goal_projection=8)
    _, goal = observations(4)
    used = projected.target(goal)
    assert not torch.allclose(used, plain.target(goal), atol=1e-3)
    projected.reset(torch.Generator().manual_seed(3))
    torch.testing.assert_close(projected.target(goal), plain.target(goal), rtol=0, atol=0)
    assert "goal_projection" not in " ".join(plain.state_dict())


def test_goal_projection_by_hand():
    field = make(goal_projection=8)
    _, goal = observations(2)
    normed = torch.nn.functional.layer_norm(goal, (E,), eps=1e-5)
    hidden = torch.nn.functional.gelu(field.goal_projection.fc1(normed), approximate="tanh")
    torch.testing.assert_close(field.target(goal), normed + field.goal_projection.fc2(hidden))


def test_the_mean_is_used_only_where_asked_for():
    mean = torch.arange(E, dtype=torch.float32)
    field = make(centre=False)
    field.reset(torch.Generator().manual_seed(0), mean=mean)
    assert not field.mean.any()
    field = make(centre=True)
    field.reset(torch.Generator().manual_seed(0), mean=mean)
    assert torch.equal(field.mean, mean)
    assert torch.equal(field.centred(mean), torch.zeros(E))


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_where_the_goal_is_hit(distance):
    field = make(distance=distance)
    point = torch.randn(2, E, requires_grad=True)
    field.distance(point, point.detach()).sum().backward()
    assert point.grad.isfinite().all()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 5),
    actions=st.integers(1, 4),
    count=st.integers(1, 12),
    batch=st.integers(1, 3),
    depth=st.integers(1, 3),
    distance=st.sampled_from(sorted(DISTANCES)),
    projection=st.sampled_from([0, 4]),
    skip=st.booleans(),
)
def test_candidates_have_the_energies_and_gradients_of_the_plain_evaluation(
    seed, horizon, actions, count, batch, depth, distance, projection, skip
):
    field = make(
        seed,
        horizon=horizon,
        actions=actions,
        depth=depth,
        distance=distance,
        goal_projection=projection,
        skip=skip,
    )
    rows = candidates(seed, batch, count, horizon, actions)
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


def test_a_query_does_not_feel_its_neighbours():
    """In a batch a narrow tree is padded to the widest; the padding must not be seen."""
    field = make(actions=5)
    one_path = [[0, 0, index] for index in range(5)]
    five_paths = [[index, (index + 1) % 5, 0] for index in range(5)]
    rows = torch.tensor([one_path, five_paths])
    initial, goal = observations(2)
    alone = torch.cat(
        [field.candidate_energies(initial[[row]], goal[[row]], rows[[row]]) for row in (0, 1)]
    )
    torch.testing.assert_close(
        field.candidate_energies(initial, goal, rows), alone, rtol=1e-5, atol=1e-6
    )
    assert (
        PrefixTree.build(rows[[0]], action_count=5).length
        < PrefixTree.build(rows, action_count=5).length
    )


def test_a_batch_without_queries():
    """The share of a process that gets none of a small batch."""
    field = make()
    energies = field.candidate_energies(
        torch.zeros(0, E), torch.zeros(0, E), torch.zeros(0, 6, 3, dtype=torch.int64)
    )
    assert energies.shape == (0, 6)
    energies.sum().backward()
    assert not field.predictor.state_embed.weight.grad.any()


def test_dropout_of_candidates():
    field = make()
    initial, goal = observations(2)
    rows = candidates(0, 2, 6, 3, 4)
    plain = field.candidate_energies(initial, goal, rows)
    one, other = (
        field.candidate_energies(
            initial, goal, rows, dropout=Dropout(0.3, torch.Generator().manual_seed(1))
        )
        for _ in range(2)
    )
    assert torch.equal(one, other)
    assert not torch.allclose(one, plain)
