"""A field of several components: two directions, and members trained from different seeds.

    E(a) = 1/M · Σ_m [ d(f_m(x_s, a), x_g) + d(b_m(x_g, reversed a), x_s) ]

The distance at the goal depends strongly on the last action, the backward one on the first;
averaging members reduces the variance of training (neither is in the paper). Every component is an
`EnergyField`, trained separately; a backward one on `reversed_windows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.field.predictor import Predictor
from cefito.field.settings import FieldConfig

__all__ = [
    "ComponentName",
    "CompositeField",
    "IncrementalComponent",
    "IncrementalComposite",
    "component_names",
    "incremental_field",
    "make_field",
    "named_components",
    "parameter_count",
]


@dataclass(frozen=True)
class ComponentName:
    """Identifies a component of a field."""

    member: int = 0  # number of the member, from 0
    backward: bool = False  # whether it reads sequences from their end

    def __str__(self) -> str:
        """Return "" for the first component, else e.g. "backward", "1" or "1-backward"."""
        return "-".join([str(self.member)] * bool(self.member) + ["backward"] * self.backward)

    def suffixed(self, stem: str) -> str:
        """Return the stem for the first component, else e.g. "field-backward"."""
        return "-".join(filter(None, (stem, str(self))))

    @property
    def prefix(self) -> str:
        """Prefix of the names of its tensors in a file."""
        return f"{self}." if str(self) else ""


def component_names(config: FieldConfig) -> tuple[ComponentName, ...]:
    """Return the components of a field, member by member, forward first."""
    directions = (False, True) if config.directions == "both" else (False,)
    return tuple(
        ComponentName(member, backward)
        for member in range(config.members)
        for backward in directions
    )


class CompositeField(nn.Module):
    """An energy field of several components; arguments as for `EnergyField`.

    The tensors of the first component have the names of a plain field, the tensors of others a
    prefix.
    """

    def __init__(self, *, config: FieldConfig, **sizes: Any) -> None:
        super().__init__()
        self.config, self.names = config, component_names(config)
        self._components = nn.ModuleList(EnergyField(config=config, **sizes) for _ in self.names)

    @property
    def components(self) -> dict[ComponentName, EnergyField]:
        """The components by their names."""
        return dict(zip(self.names, self._components, strict=True))  # type: ignore[arg-type]

    @property
    def predictor(self) -> Predictor:
        """The predictor of the first component; all have the same sizes."""
        return self.components[ComponentName()].predictor

    @property
    def horizon(self) -> int:
        """T, the number of actions of a sequence."""
        return self.predictor.horizon

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `EnergyField.energy`."""
        total = torch.zeros(len(actions), device=actions.device)
        for name, component in self.components.items():
            if name.backward:
                values = component.energy(goal, initial, actions.flip(-1))
            else:
                values = component.energy(initial, goal, actions)
            total += values / self.config.members
        return total

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return all tensors by their names in a file."""
        return {
            f"{name.prefix}{tensor}": value
            for name, component in self.components.items()
            for tensor, value in component.state_dict().items()
        }

    def load_state_dict(  # type: ignore[override]
        self, tensors: Mapping[str, Tensor], *_: Any, **__: Any
    ) -> None:
        """Load tensors by their names in a file."""
        for name, component in self.components.items():
            own = component.state_dict()
            component.load_state_dict({tensor: tensors[f"{name.prefix}{tensor}"] for tensor in own})


@dataclass(frozen=True)
class IncrementalComponent:
    """A component as a search walks it."""

    energies: IncrementalField  # the component over the tree of prefixes
    reversed: bool  # whether it takes goal, initial observation and reversed actions
    weight: float  # factor of its energies


class IncrementalComposite:
    """A composite field, frozen for search; each component walks its own tree."""

    def __init__(self, field: CompositeField) -> None:
        self.field, self.horizon = field, field.horizon
        parts = [
            IncrementalComponent(
                IncrementalField(component), name.backward, 1 / field.config.members
            )
            for name, component in field.components.items()
        ]
        # forward components last: a walk then yields the leaves in order
        self._components = tuple(sorted(parts, key=lambda one: not one.reversed))

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""
        return self._components[0].energies.device

    def components(self) -> tuple[IncrementalComponent, ...]:
        """Return the components, backward ones first."""
        return self._components

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `CompositeField.energy`."""
        with torch.inference_mode():
            return self.field.energy(initial, goal, actions)


def make_field(*, config: FieldConfig, **sizes: Any) -> EnergyField | CompositeField:
    """Make a field with the configured components; arguments as for `EnergyField`."""
    several = len(component_names(config)) > 1
    return (
        CompositeField(config=config, **sizes) if several else EnergyField(config=config, **sizes)
    )


def named_components(
    field: EnergyField | CompositeField,
) -> Iterator[tuple[ComponentName, EnergyField]]:
    """Yield the components of a field with their names."""
    yield from (
        field.components.items()
        if isinstance(field, CompositeField)
        else [(ComponentName(), field)]
    )


def parameter_count(field: EnergyField | CompositeField) -> int:
    """Return the number of parameters of all predictors, without frozen vectors and positions."""
    return sum(component.predictor.parameter_count() for _, component in named_components(field))


def incremental_field(
    field: EnergyField | CompositeField,
) -> IncrementalField | IncrementalComposite:
    """Return a field frozen for search."""
    return (
        IncrementalComposite(field)
        if isinstance(field, CompositeField)
        else IncrementalField(field)
    )
