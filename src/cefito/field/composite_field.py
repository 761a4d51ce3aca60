"""A field of several parts: the two directions, and members trained from seeds of their own.

    E(a) = 1/M · Σ_m [ d(f_m(x_s, a), x_g) + d(b_m(x_g, reversed a), x_s) ]

The distance at the goal says much of the last action and little of the first; read backward, it is
the other way round. Averaging members takes out what a training happened to draw (neither is in the
paper). Every part is an `EnergyField` of its own, trained by itself; a backward one knows windows
only as `reversed_windows` shows them.
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
    """Which part of a field something is.

    Attributes:
        member: Number of the member, from 0.
        backward: Whether it reads sequences from their end.
    """

    member: int = 0
    backward: bool = False

    def __str__(self) -> str:
        """Nothing for the first part, else as in "backward", "1" and "1-backward"."""
        return "-".join([str(self.member)] * bool(self.member) + ["backward"] * self.backward)

    def suffixed(self, stem: str) -> str:
        """A name of something of this part: the stem alone for the first, else "field-backward"."""
        return "-".join(filter(None, (stem, str(self))))

    @property
    def prefix(self) -> str:
        """What stands before the names of its tensors in a file."""
        return f"{self}." if str(self) else ""


def component_names(config: FieldConfig) -> tuple[ComponentName, ...]:
    """The parts of a field, member by member, forward first."""
    directions = (False, True) if config.directions == "both" else (False,)
    return tuple(
        ComponentName(member, backward)
        for member in range(config.members)
        for backward in directions
    )


class CompositeField(nn.Module):
    """An energy field of several parts.

    Tensors of the first part bear the names that they have in a field of one part, those of the
    others a prefix before them.

    Args:
        config: Sizes and options of each part, and which parts there are.
        observation_dim: E.
        action_count: K.
        horizon: T.
        action_vectors: Frozen vectors of the actions [K, W], or None to learn them.
    """

    def __init__(self, *, config: FieldConfig, **sizes: Any) -> None:
        super().__init__()
        self.config, self.names = config, component_names(config)
        self._parts = nn.ModuleList(EnergyField(config=config, **sizes) for _ in self.names)

    @property
    def parts(self) -> dict[ComponentName, EnergyField]:
        """The parts by their names."""
        return dict(zip(self.names, self._parts, strict=True))  # type: ignore[arg-type]

    @property
    def predictor(self) -> Predictor:
        """The predictor of the first part, which tells the sizes of all."""
        return self.parts[ComponentName()].predictor

    @property
    def horizon(self) -> int:
        """T, the number of actions of a sequence."""
        return self.predictor.horizon

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Energies [B] of full sequences; see `EnergyField.energy`."""
        total = torch.zeros(len(actions), device=actions.device)
        for name, part in self.parts.items():
            if name.backward:
                values = part.energy(goal, initial, actions.flip(-1))
            else:
                values = part.energy(initial, goal, actions)
            total += values / self.config.members
        return total

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """All tensors by their names in a file."""
        return {
            f"{name.prefix}{tensor}": value
            for name, part in self.parts.items()
            for tensor, value in part.state_dict().items()
        }

    def load_state_dict(  # type: ignore[override]
        self, tensors: Mapping[str, Tensor], *_: Any, **__: Any
    ) -> None:
        """Take over tensors by their names in a file."""
        for name, part in self.parts.items():
            own = part.state_dict()
            part.load_state_dict({tensor: tensors[f"{name.prefix}{tensor}"] for tensor in own})


@dataclass(frozen=True)
class IncrementalComponent:
    """A part as a search walks it.

    Attributes:
        energies: The part over the tree of prefixes.
        reversed: Whether it is given goal, initial observation and reversed actions.
        weight: Factor of its energies.
    """

    energies: IncrementalField
    reversed: bool
    weight: float


class IncrementalComposite:
    """A field of several parts frozen for search; each part walks a tree of its own.

    Args:
        field: The field; taken in evaluation mode, without gradients.
    """

    def __init__(self, field: CompositeField) -> None:
        self.field, self.horizon = field, field.horizon
        parts = [
            IncrementalComponent(IncrementalField(part), name.backward, 1 / field.config.members)
            for name, part in field.parts.items()
        ]
        # forward parts last: whoever joins energies meets the leaves in their order
        self._parts = tuple(sorted(parts, key=lambda part: not part.reversed))

    @property
    def device(self) -> torch.device:
        """Where observations and actions are expected."""
        return self._parts[0].energies.device

    def components(self) -> tuple[IncrementalComponent, ...]:
        """The parts, backward ones first."""
        return self._parts

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Energies [B] of full sequences, evaluated one by one; see `CompositeField.energy`."""
        with torch.inference_mode():
            return self.field.energy(initial, goal, actions)


def make_field(*, config: FieldConfig, **sizes: Any) -> EnergyField | CompositeField:
    """A field of as many parts as configured; arguments as those of `EnergyField`."""
    several = len(component_names(config)) > 1
    return (
        CompositeField(config=config, **sizes) if several else EnergyField(config=config, **sizes)
    )


def named_components(
    field: EnergyField | CompositeField,
) -> Iterator[tuple[ComponentName, EnergyField]]:
    """The parts of a field, with their names."""
    yield from (
        field.parts.items() if isinstance(field, CompositeField) else [(ComponentName(), field)]
    )


def parameter_count(field: EnergyField | CompositeField) -> int:
    """Learned numbers of all predictors; frozen vectors and positions are not counted."""
    return sum(part.predictor.parameter_count() for _, part in named_components(field))


def incremental_field(
    field: EnergyField | CompositeField,
) -> IncrementalField | IncrementalComposite:
    """A field frozen for search."""
    return (
        IncrementalComposite(field)
        if isinstance(field, CompositeField)
        else IncrementalField(field)
    )
