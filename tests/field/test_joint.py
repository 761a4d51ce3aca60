import pytest
import torch

from cefito.field.energy import EnergyField
from cefito.field.fields import (
    ComponentName,
    CompositeField,
    IncrementalComposite,
    IncrementalField,
    component_names,
    incremental_field,
    make_field,
    named_components,
    parameter_count,
)
from cefito.field.settings import FieldConfig


def make(seed=0, **settings):
    config = FieldConfig(width=16, depth=1, heads=2, action_dim=6, **settings)
    made = make_field(config=config, observation_dim=10, action_count=6, horizon=3)
    for number, (_, part) in enumerate(named_components(made)):
        part.reset(torch.Generator().manual_seed(100 * seed + number))
    return made


def queries(count=5):
    generator = torch.Generator().manual_seed(1)
    initial, goal = torch.randn(2, count, 10, generator=generator)
    return initial, goal, torch.randint(6, (count, 3), generator=generator)


def test_parts_by_settings():
    def names(**settings):
        return [str(name) for name in component_names(FieldConfig(**settings))]

    assert ComponentName(1, backward=True).suffixed("field") == "field-1-backward"
    assert names() == [""]
    assert names(directions="both") == ["", "backward"]
    assert names(members=3) == ["", "1", "2"]
    assert names(directions="both", members=2) == ["", "backward", "1", "1-backward"]


def test_one_part_is_a_plain_field():
    made = make()
    assert type(made) is EnergyField
    assert type(incremental_field(made)) is IncrementalField
    assert [(name, part) for name, part in named_components(made)] == [(ComponentName(), made)]


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("directions", ["forward", "both"])
def test_energy_is_the_mean_over_members_of_both_directions(directions, members):
    if (directions, members) == ("forward", 1):
        return
    made = make(directions=directions, members=members)
    initial, goal, actions = queries()
    expected = torch.zeros(5)
    for name, part in named_components(made):
        forward = part.energy(initial, goal, actions)
        backward = part.energy(goal, initial, actions.flip(1))
        expected += backward if name.backward else forward
    expected /= members
    torch.testing.assert_close(made.energy(initial, goal, actions), expected)
    frozen = incremental_field(made)
    assert isinstance(frozen, IncrementalComposite)
    torch.testing.assert_close(frozen.energy(initial, goal, actions), expected)
    assert sum(part.weight for part in frozen.components()) == pytest.approx(
        2 if directions == "both" else 1
    )
    reversed_ = [part.reversed for part in frozen.components()]
    assert reversed_ == sorted(reversed_, reverse=True)


def test_the_first_part_keeps_its_names_in_a_file():
    made, alone = make(directions="both", members=2), make()
    names = list(alone.state_dict())
    prefixes = ["", "backward.", "1.", "1-backward."]
    assert list(made.state_dict()) == [prefix + name for prefix in prefixes for name in names]
    for name, value in alone.state_dict().items():
        assert torch.equal(value, made.state_dict()[name])


def test_sizes_are_those_of_every_part():
    made, alone = make(directions="both", members=2), make()
    assert isinstance(made, CompositeField)
    assert made.horizon == 3
    assert made.predictor.action_count == 6
    assert parameter_count(made) == 4 * parameter_count(alone)
    assert parameter_count(alone) == alone.predictor.parameter_count()
    assert next(made.to("cpu").eval().parameters()).device.type == "cpu"
