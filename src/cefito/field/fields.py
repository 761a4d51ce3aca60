"""Fields as planners and searches use them: energies prefix by prefix, in one direction or both.

A search computes two tokens a node of the tree of prefixes (the action and the state after it)
instead of 2T + 1 a candidate, and the same energies to float rounding: attention is causal, and in
the first block an action's projections come from a table (`children`); distances have D dimensions
(`ReducedDistance`).

A field may have both directions, each an `EnergyField` that is trained separately, the backward one
on `reversed_windows` (not in the paper):

    E(a) = d(f(x_s, a), x_g) + d(b(x_g, reversed a), x_s)

The distance at the goal depends strongly on the last action, the backward one on the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.cache import PrefixCache
from cefito.field.children import Children, Prefixes
from cefito.field.energy import EnergyField, ReducedDistance
from cefito.field.predictor import Predictor
from cefito.field.settings import FieldConfig


class IncrementalField:
    """An energy field in evaluation mode, frozen for search: build a new one for other weights."""

    @torch.inference_mode()
    def __init__(self, field: EnergyField) -> None:
        self.field = field
        self.horizon = field.horizon
        self._children = Children(field.predictor)
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
        """Return the bytes of a child; `each` copies the keys and values of its path."""
        width, heads = self.field.config.width, self.field.config.heads
        hidden = round(self.field.config.mlp_ratio * width)
        # numbers of two tokens: stream, norm, q, k, v, mixed, MLP twice; attention scores twice
        working = 2 * (6 * width + 2 * hidden) + 4 * heads * (2 * depth + 3)
        copied = 4 * (2 * depth + 3) * width if each else 0
        kept = 0 if leaf else 2 * self.field.config.depth * (2 * depth + 3) * width
        return 4 * (working + copied + kept)

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of a token, without attention to earlier tokens."""
        config = self.field.config
        return round(2 * self.field.config.depth * config.width**2 * (4 + 2 * config.mlp_ratio))

    @torch.inference_mode()
    def root(self, initial: Tensor, goal: Tensor) -> Prefixes:
        """Return the empty prefixes of Q queries between observations [Q, E]."""
        predictor = self.field.predictor
        x = (predictor.state_token(self.field.centred(initial)) + predictor.pos_embed[0])[:, None]
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
            self.field.predictor.norm(goals[:, -1]), cache.target[query], actions
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
    def leaf_energy(self, prefixes: Prefixes, actions: Tensor) -> Tensor:
        """Return the energies [n, A] of n prefixes of T − 1 actions ended by every action [A]."""
        goals, _ = self._children.of_every(prefixes, actions, leaf=True)
        squared = self._reach.squared(
            self.field.predictor.norm(goals[:, :, -1]), prefixes.target[:, None], actions
        )
        return self.field.from_squared(squared + prefixes.offsets[prefixes.query][:, actions])


BACKWARD = "backward"
"""Name of the component that reads sequences from their end; the other one's is empty."""


class CompositeField(nn.Module):
    """An energy field of both directions; arguments as for `EnergyField`."""

    def __init__(self, *, config: FieldConfig, **sizes: Any) -> None:
        super().__init__()
        self.config = config
        self.ahead, self.back = (EnergyField(config=config, **sizes) for _ in range(2))

    @property
    def predictor(self) -> Predictor:
        """The predictor of the forward component; both have the same sizes."""
        return self.ahead.predictor

    @property
    def horizon(self) -> int:
        """T, the number of actions of a sequence."""
        return self.predictor.horizon

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `EnergyField.energy`."""
        back = self.back.energy(goal, initial, actions.flip(-1))
        return self.ahead.energy(initial, goal, actions) + back


class IncrementalComposite:
    """A composite field, frozen for search; each component walks its own tree."""

    def __init__(self, field: CompositeField) -> None:
        self.field, self.horizon = field, field.horizon
        # the forward component last: a walk then yields the leaves in order
        self._components = (
            (IncrementalField(field.back), True),
            (IncrementalField(field.ahead), False),
        )

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""
        return self._components[0][0].device

    def components(self) -> tuple[tuple[IncrementalField, bool], ...]:
        """Return the fields of the components, and whether each reads sequences backward."""
        return self._components

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `CompositeField.energy`."""
        with torch.inference_mode():
            return self.field.energy(initial, goal, actions)


def make_field(*, config: FieldConfig, **sizes: Any) -> EnergyField | CompositeField:
    """Make a field of the configured directions; arguments as for `EnergyField`."""
    if config.directions == "both":
        return CompositeField(config=config, **sizes)
    return EnergyField(config=config, **sizes)


def named_components(field: EnergyField | CompositeField) -> dict[str, EnergyField]:
    """Return the components of a field by their names: "" and, with both directions, `BACKWARD`."""
    if isinstance(field, CompositeField):
        return {"": field.ahead, BACKWARD: field.back}
    return {"": field}


def parameter_count(field: EnergyField | CompositeField) -> int:
    """Return the number of parameters of all predictors, without frozen vectors and positions."""
    return sum(part.predictor.parameter_count() for part in named_components(field).values())


SearchedField = IncrementalField | IncrementalComposite
"""A field as a search walks it."""


def incremental_field(field: EnergyField | CompositeField) -> SearchedField:
    """Return a field frozen for search."""
    if isinstance(field, CompositeField):
        return IncrementalComposite(field)
    return IncrementalField(field)
