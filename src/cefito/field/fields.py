"""Fields as planners and searches use them: energies prefix by prefix, of one or more components.

A search computes two tokens a node of the tree of prefixes (the action and the state after it)
instead of 2T + 1 a candidate, and the same energies to float rounding: attention is causal, and in
the first block an action's projections come from a table (`children`); distances have D dimensions
(`ReducedDistance`).

A field may have two directions, and members trained from different seeds:

    E(a) = 1/M · Σ_m [ d(f_m(x_s, a), x_g) + d(b_m(x_g, reversed a), x_s) ]

The distance at the goal depends strongly on the last action, the backward one on the first;
averaging members reduces the variance of training (neither is in the paper). Every component is an
`EnergyField`, trained separately; a backward one on `reversed_windows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.cache import PrefixCache
from cefito.field.children import Children, Prefixes
from cefito.field.energy import EnergyField, ReducedDistance
from cefito.field.predictor import Predictor
from cefito.field.settings import FieldConfig
from cefito.runtime import capability

__all__ = [
    "ComponentName",
    "CompositeField",
    "IncrementalComponent",
    "IncrementalComposite",
    "IncrementalField",
    "SearchedField",
    "component_names",
    "incremental_field",
    "make_field",
    "named_components",
    "parameter_count",
]

_WIDE = 192  # width from which on matrix products take most of the time


class IncrementalField:
    """An energy field frozen for search. Build a new one when the weights change.

    Args:
        field: The field, in evaluation mode; no gradients are computed.
        dtype: Type of weights, keys, values and tokens; norms and energies are float32.
    """

    @torch.inference_mode()
    def __init__(self, field: EnergyField, *, dtype: torch.dtype = torch.float32) -> None:
        self.field = field
        self.horizon = field.horizon
        self._dtype = dtype
        self._children = Children(field.predictor, dtype=dtype)
        self._reach = ReducedDistance(field.predictor)

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""
        return self._reach.device

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `EnergyField.energy`."""
        with torch.inference_mode():
            return self.field.energy(initial, goal, actions)

    def bytes_per_child(self, depth: int, *, leaf: bool, each: bool = False) -> int:
        """Return the memory of a child; `each` copies its parent's keys and values."""
        width, heads = self.field.config.width, self.field.config.heads
        hidden = round(self.field.config.mlp_ratio * width)
        # numbers of two tokens: stream, norm, q, k, v, mixed, MLP twice; attention scores twice
        working = 2 * (6 * width + 2 * hidden) + 4 * heads * (2 * depth + 3)
        copied = 4 * (2 * depth + 3) * width if each else 0
        kept = 0 if leaf else 2 * self.field.config.depth * (2 * depth + 3) * width
        return self._dtype.itemsize * (working + copied + kept)

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of a token, without attention to earlier tokens."""
        config = self.field.config
        return round(2 * self.field.config.depth * config.width**2 * (4 + 2 * config.mlp_ratio))

    def coarse(self) -> IncrementalField:
        """Return the same field in bfloat16, with weights cast once; itself if it is coarse."""
        return self if self._dtype == torch.bfloat16 else self._twin

    @property
    def coarse_pays(self) -> bool:
        """Whether bfloat16 is much faster for networks of this width on this device."""
        native = capability(self.device) != "none"
        return native and self.field.config.width >= _WIDE

    @cached_property
    def _twin(self) -> IncrementalField:
        return IncrementalField(self.field, dtype=torch.bfloat16)

    @torch.inference_mode()
    def root(self, initial: Tensor, goal: Tensor) -> Prefixes:
        """Return the empty prefixes of Q queries between observations [Q, E]."""
        predictor = self.field.predictor
        x = (predictor.state_token(self.field.centred(initial)) + predictor.pos_embed[0])[:, None]
        x = x.to(self._dtype)
        keys, values = [], []
        for block in self._children.blocks:
            key, value = block.keys_values(x)
            keys.append(key)
            values.append(value)
            x = block.after(x, value)  # one key: attention is its value
        target, offsets = self._reach.of_goals(self.field.target(goal))
        return Prefixes(
            depth=0,
            keys=tuple(keys),
            values=tuple(values),
            target=target,
            query=torch.arange(len(goal), device=goal.device),
            offsets=offsets,
        )

    @torch.inference_mode()
    def cached(self, initial: Tensor, goal: Tensor) -> PrefixCache:
        """Return a cache with the empty prefixes of Q queries between observations [Q, E]."""
        return PrefixCache(self._children, self.root(initial, goal), self.horizon)

    @torch.inference_mode()
    def sequence_energies(
        self, cache: PrefixCache, levels: Sequence[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Add prefixes and return the energies [m] of sequences; see `PrefixCache.goals`."""
        goals, query = cache.goals(levels)
        count, more = len(query), len(goals) - len(query)
        query, actions = F.pad(query, (0, more)), F.pad(levels[-1][1], (0, more))
        squared = self._reach.squared(
            self.field.predictor.norm(goals[:, -1].float()), cache.target[query], actions
        )
        return self.field.from_squared(squared + cache.offsets[query, actions])[:count]

    @torch.inference_mode()
    def extend(self, prefixes: Prefixes, actions: Tensor) -> Prefixes:
        """Continue n prefixes by every action [A]: n · A prefixes, those of one parent together."""
        count = len(actions)

        def below(cache: Tensor, pairs: Tensor) -> Tensor:
            """Append each child's pair to its parent's cache, [n · A, 2 · depth + 3, D]."""
            above = cache[:, None].expand(-1, count, -1, -1)
            pairs = pairs.expand(len(prefixes), -1, -1, -1)
            return torch.cat([above, pairs], dim=2).flatten(0, 1)

        _, pairs = self._children.of_every(prefixes, actions)
        keys, values = zip(*pairs, strict=True)
        return Prefixes(
            depth=prefixes.depth + 1,
            keys=tuple(map(below, prefixes.keys, keys)),
            values=tuple(map(below, prefixes.values, values)),
            target=prefixes.target.repeat_interleave(count, dim=0),
            query=prefixes.query.repeat_interleave(count),
            offsets=prefixes.offsets,
        )

    @torch.inference_mode()
    def extend_each(self, prefixes: Prefixes, parents: Tensor, actions: Tensor) -> Prefixes:
        """Continue chosen prefixes [m], each by an action of its own [m]."""
        _, pairs = self._children.of_chosen(prefixes, parents, actions)
        keys, values = zip(*pairs, strict=True)
        return Prefixes(
            depth=prefixes.depth + 1,
            keys=keys,
            values=values,
            target=prefixes.target[parents],
            query=prefixes.query[parents],
            offsets=prefixes.offsets,
        )

    @torch.inference_mode()
    def leaf_energy(self, prefixes: Prefixes, actions: Tensor) -> Tensor:
        """Return the energies [n, A] of n prefixes of T − 1 actions ended by every action [A]."""
        goals, _ = self._children.of_every(prefixes, actions, leaf=True)
        squared = self._reach.squared(
            self.field.predictor.norm(goals[:, :, -1].float()), prefixes.target[:, None], actions
        )
        return self.field.from_squared(squared + prefixes.offsets[prefixes.query][:, actions])

    @torch.inference_mode()
    def leaf_energy_each(self, prefixes: Prefixes, parents: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [m] of chosen prefixes [m], each ended by its own action [m]."""
        goals, _ = self._children.of_chosen(prefixes, parents, actions, leaf=True)
        squared = self._reach.squared(
            self.field.predictor.norm(goals[:, -1].float()), prefixes.target[parents], actions
        )
        return self.field.from_squared(squared + prefixes.offsets[prefixes.query[parents], actions])


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


SearchedField = IncrementalField | IncrementalComposite
"""A field as a search walks it."""


def incremental_field(
    field: EnergyField | CompositeField,
) -> SearchedField:
    """Return a field frozen for search."""
    return (
        IncrementalComposite(field)
        if isinstance(field, CompositeField)
        else IncrementalField(field)
    )
