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
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.children import Children, Prefixes
from cefito.field.energy import EnergyField, ReducedDistance
from cefito.field.predictor import Predictor
from cefito.field.settings import FieldConfig
from cefito.runtime import capability

_WIDE = 192  # width from which on matrix products take most of the time


class PrefixCache:
    """Prefixes of Q queries: number q < Q is the empty one of query q, others follow as added.

    Besides the row of its query's initial observation, a prefix has two rows of keys and values for
    each action: of the action, and of the state after it. Prefixes share the rows of common parts.

    All new prefixes of a call, whatever their lengths, go through the network together with the
    sequences that they lead to: every weight matrix is read once. In each block the keys and values
    of all new tokens are computed first, then each token attends to those on its own path.

    Args:
        children: Computes the energies of sequences from prefixes.
        roots: The Q empty prefixes.
        horizon: Number T of steps.
    """

    def __init__(self, children: Children, roots: Prefixes, horizon: int) -> None:
        self._children, self._horizon, self._empty = children, horizon, len(roots)
        self.target, self.offsets = roots.target, roots.offsets  # of each query
        # keys and values of each block, [rows, D]; there may be more rows than are used
        self._keys = [key[:, 0].contiguous() for key in roots.keys]
        self._values = [value[:, 0].contiguous() for value in roots.values]
        # rows of each prefix, from its query's on, padded by zeros: [prefixes, 2T − 1]
        self._paths = roots.query.new_zeros(self._empty, 2 * horizon - 1)
        self._paths[:, 0] = roots.query

    @property
    def kept_bytes(self) -> int:
        """Memory of the keys and values."""
        return sum(
            tensor.numel() * tensor.element_size() for tensor in (*self._keys, *self._values)
        )

    def clear(self) -> None:
        """Keep the empty prefixes alone."""
        self._paths = self._paths[: self._empty]
        self._keys = [key[: self._empty].clone() for key in self._keys]
        self._values = [value[: self._empty].clone() for value in self._values]

    def goals(self, levels: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Add prefixes, and end sequences.

        `levels` has for each number of actions, 1 to T, the prefixes to continue, by number, and
        the actions that continue them, both [n]. Sequences of T actions are not kept.

        Returns:
            The tokens of their goals [m, 1, D], behind them padding, and their queries [m].
        """
        # In each level a path ends by its own two rows; sequences have rows until the next call.
        first, paths = self._rows, []  # the latter of each level [n, 2 depth + 3]
        for depth, (parents, _) in enumerate(levels):
            row_pairs = self._rows + torch.arange(2 * len(parents), device=parents.device).view(
                -1, 2
            )
            paths.append(torch.cat([self._paths[parents, : 2 * depth + 1], row_pairs], dim=1))
            if depth < self._horizon - 1:
                more = self._paths.shape[1] - paths[-1].shape[1]
                self._paths = torch.cat([self._paths, F.pad(paths[-1], (0, more))])
        # Tokens of sequences come first, then those of prefixes of one action, two actions, …
        order = [self._horizon - 1, *range(self._horizon - 1)]
        sizes = [len(paths[depth]) for depth in order]
        leaves, total = sizes[0], sum(sizes)
        groups = [
            (slice(end - size, end), paths[depth])
            for depth, size, end in zip(order, sizes, accumulate(sizes), strict=True)
            if size
        ]
        inner, ends = slice(first, self._rows), slice(self._rows, self._rows + 2 * leaves)
        self._keys, self._values = (
            [_with_room(tensor, ends.stop) for tensor in parts]
            for parts in (self._keys, self._values)
        )

        def attention(index: int, query: Tensor | None, key: Tensor, value: Tensor) -> Tensor:
            # keys and values of all pairs [N, 2, D]; queries too, in the last block [m, 1, D]
            assert query is not None  # since there are goals
            keys, values = self._keys[index], self._values[index]
            for kept, new in ((keys, key), (values, value)):
                kept[ends] = new[:leaves].flatten(0, 1)
                kept[inner] = new[leaves:total].flatten(0, 1)
            mixed = torch.zeros_like(query)  # padding stays zero
            for block, rows in groups if query.shape[1] == 2 else groups[:1]:
                mixed[block] = self._children.attend_each(query[block], keys, values, rows)
            return mixed

        goals = self._children.of_nodes(
            torch.cat([torch.full_like(levels[depth][1], depth) for depth in order]),
            torch.cat([levels[depth][1] for depth in order]),
            attention,
            leaves=sizes[0],
        )
        return goals, paths[-1][:, 0]

    @property
    def _rows(self) -> int:
        """Number of rows in use."""
        return 2 * len(self._paths) - self._empty


def _with_room(rows: Tensor, count: int) -> Tensor:
    """Return rows [n, D] with room for `count`, doubled at least so that they are seldom copied."""
    if count <= len(rows):
        return rows
    larger = rows.new_empty(max(count, 2 * len(rows)), rows.shape[1])
    larger[: len(rows)] = rows
    return larger


class IncrementalField:
    """An energy field in evaluation mode, frozen for search: build a new one for other weights.

    Tokens, keys, values and products are of a type; norms and distances are float32.
    """

    @torch.inference_mode()
    def __init__(self, field: EnergyField, dtype: torch.dtype = torch.float32) -> None:
        self.field, self._dtype = field, dtype
        self.horizon = field.horizon
        self._children = Children(field.predictor, dtype)
        self._reach = ReducedDistance(field.predictor)

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""
        return self._reach.device

    @cached_property
    def coarse(self) -> IncrementalField:
        """The same field in bfloat16, cast once."""
        return IncrementalField(self.field, torch.bfloat16)

    @property
    def coarse_pays(self) -> bool:
        """Whether the device multiplies bfloat16 natively, and products take most of the time."""
        return capability(self.device) != "none" and self.field.config.width >= _WIDE

    @torch.inference_mode()
    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `EnergyField.energy`."""
        return self.field.energy(initial, goal, actions)

    def bytes_per_child(self, depth: int, *, leaf: bool, cached: bool = False) -> int:
        """Return the bytes of a child; `cached` copies the keys and values of its path."""
        width, heads = self.field.config.width, self.field.config.heads
        hidden = round(self.field.config.mlp_ratio * width)
        # numbers of two tokens: stream, norm, q, k, v, mixed, MLP twice; attention scores twice
        working = 2 * (6 * width + 2 * hidden) + 4 * heads * (2 * depth + 3)
        copied = 4 * (2 * depth + 3) * width if cached else 0
        kept = 0 if leaf else 2 * self.field.config.depth * (2 * depth + 3) * width
        return self._dtype.itemsize * (working + copied + kept)

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
        return replace(
            prefixes,
            depth=prefixes.depth + 1,
            keys=tuple(map(below, prefixes.keys, keys)),
            values=tuple(map(below, prefixes.values, values)),
            target=prefixes.target.repeat_interleave(count, dim=0),
            query=prefixes.query.repeat_interleave(count),
        )

    @torch.inference_mode()
    def leaf_energy(self, prefixes: Prefixes, actions: Tensor) -> Tensor:
        """Return the energies [n, A] of n prefixes of T − 1 actions ended by every action [A]."""
        goals, _ = self._children.of_every(prefixes, actions, leaf=True)
        squared = self._reach.squared(
            self.field.predictor.norm(goals[:, :, -1].float()), prefixes.target[:, None], actions
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

    def __init__(self, field: CompositeField, dtype: torch.dtype = torch.float32) -> None:
        self.field, self.horizon = field, field.horizon
        # the forward component last: a walk then yields the leaves in order
        self._components = (
            (IncrementalField(field.back, dtype), True),
            (IncrementalField(field.ahead, dtype), False),
        )

    @property
    def device(self) -> torch.device:
        """Device of observations and actions."""
        return self._components[0][0].device

    @cached_property
    def coarse(self) -> IncrementalComposite:
        """The same field in bfloat16."""
        return IncrementalComposite(self.field, torch.bfloat16)

    def components(self) -> tuple[tuple[IncrementalField, bool], ...]:
        """Return the fields of the components, and whether each reads sequences backward."""
        return self._components

    @torch.inference_mode()
    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of full sequences; see `CompositeField.energy`."""
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


SearchedField = IncrementalField | IncrementalComposite
"""A field as a search walks it."""


def incremental_field(field: EnergyField | CompositeField) -> SearchedField:
    """Return a field frozen for search."""
    if isinstance(field, CompositeField):
        return IncrementalComposite(field)
    return IncrementalField(field)
