import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.field.settings import DISTANCES
from drawn import drawn
from random_fields import random_field


def observations(
    field: EnergyField, queries: int, seed: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(drawn(2, queries, field.predictor.observation_dim, seed=seed))


fields = st.builds(
    random_field,
    st.integers(0, 10_000),
    horizon=st.integers(1, 4),
    observation_dim=st.sampled_from([8, 16, 24]),
    depth=st.integers(1, 3),
    distance=st.sampled_from(sorted(DISTANCES)),
    normalisation=st.sampled_from(["layer", "unit"]),
    centre=st.booleans(),
    skip=st.booleans(),
)


def every_energy(
    field: EnergyField, initial: torch.Tensor, goal: torch.Tensor, allowed: list[int]
) -> torch.Tensor:
    """Energies of all of A^T by full forwards, [Q, A^T]."""
    sequences = torch.tensor(list(itertools.product(allowed, repeat=field.horizon)))
    with torch.no_grad():
        return torch.stack(
            [
                field.energy(
                    one.expand(len(sequences), -1), other.expand(len(sequences), -1), sequences
                )
                for one, other in zip(initial, goal, strict=True)
            ]
        )


@given(
    field=fields,
    seed=st.integers(0, 1000),
    queries=st.integers(1, 3),
    allowed=st.sets(st.integers(0, 5), min_size=1, max_size=4),
)
def test_the_walk_gives_the_energies_of_full_sequences(field, seed, queries, allowed):
    horizon = field.horizon
    initial, goal = observations(field, queries, seed)
    incremental, actions = IncrementalField(field), torch.tensor(sorted(allowed))
    prefixes = incremental.root(initial, goal)
    for level in range(horizon - 1):
        assert prefixes.depth == level
        assert len(prefixes) == queries * len(allowed) ** level
        prefixes = incremental.extend(prefixes, actions)
    found = incremental.leaf_energy(prefixes, actions).view(queries, -1)
    torch.testing.assert_close(
        found, every_energy(field, initial, goal, sorted(allowed)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_memory_of_a_child_covers_what_it_keeps(depth):
    field = random_field(horizon=4, depth=3)
    incremental, actions = IncrementalField(field), torch.arange(2)
    prefixes = incremental.root(*observations(field, 1))
    for _ in range(depth + 1):
        prefixes = incremental.extend(prefixes, actions)
    kept = sum(
        tensor.numel() * tensor.element_size() for tensor in (*prefixes.keys, *prefixes.values)
    ) / len(prefixes)
    inner, leaf = (incremental.bytes_per_child(depth, leaf=leaf) for leaf in (False, True))
    assert kept < inner
    assert leaf < inner < incremental.bytes_per_child(depth + 1, leaf=False)
    # a block's copies of the path's keys and values, while they are attended to
    each = incremental.bytes_per_child(depth, leaf=False, cached=True)
    assert each - inner >= 2 * kept / (2 * 3)


@pytest.mark.parametrize(("width", "depth", "ratio"), [(16, 2, 2), (32, 3, 1.5)])
def test_operations_of_a_token(width, depth, ratio):
    """Two for each weight of the blocks' matrices: a multiplication and an addition."""
    field = random_field(width=width, depth=depth, mlp_ratio=ratio)
    matrices = sum(
        parameter.numel()
        for parameter in field.predictor.blocks.parameters()
        if parameter.ndim == 2
    )
    assert IncrementalField(field).flops_per_token == 2 * matrices
