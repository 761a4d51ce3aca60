"""Fields of both directions."""

import torch

from cefito.field.energy import EnergyField
from cefito.field.fields import (
    BACKWARD,
    IncrementalField,
    incremental_field,
    make_field,
    named_components,
)
from cefito.field.settings import FieldConfig
from cefito.runtime import count_parameters
from random_fields import randomise


def make(**settings):
    config = FieldConfig(width=16, depth=1, heads=2, action_dim=6, **settings)
    made = make_field(config=config, observation_dim=10, action_count=6, horizon=3)
    for number, part in enumerate(named_components(made).values()):
        randomise(part, torch.Generator().manual_seed(number))  # so that actions count
    return made


def test_one_direction_is_a_plain_field():
    made = make()
    assert type(made) is EnergyField
    assert type(incremental_field(made)) is IncrementalField
    assert named_components(made) == {"": made}


def test_energies_of_both_directions_add_up():
    made, generator = make(directions="both"), torch.Generator().manual_seed(1)
    initial, goal = torch.randn(2, 5, 10, generator=generator)
    actions = torch.randint(6, (5, 3), generator=generator)
    ahead, back = named_components(made).values()
    assert list(named_components(made)) == ["", BACKWARD]
    expected = ahead.energy(initial, goal, actions) + back.energy(goal, initial, actions.flip(1))
    for field in (made, incremental_field(made)):
        torch.testing.assert_close(field.energy(initial, goal, actions), expected)
        assert field.horizon == 3
    assert [backward for _, backward in incremental_field(made).components()] == [True, False]
    assert count_parameters(made) == 2 * count_parameters(make())
    assert made.predictor.action_count == 6
