"""The field over the tree of prefixes.

Keys and values of a prefix are computed once and serve all its continuations.

Two tokens a node (the action and the state after it) instead of 2T + 1 a candidate, the same
energies to float rounding. In the first block an action's projections do not depend on the query
and come from a table; in the last block of the last level only the goal token is computed; the
distance is taken after a QR decomposition of the state head, in D instead of E dimensions.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.energy import EnergyField
from cefito.field.predictor import Block, normalise

__all__ = ["IncrementalField", "Prefixes"]


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of one length for one or several queries: what their continuations need.

    Attributes:
        depth: Actions so far.
        keys: Keys of each block [n, 2 · depth + 1, D], over all prefixes of all queries.
        values: Values, likewise.
        target: Where the goal lies for each prefix, in the coordinates of the distance [n, R].
        query: Query of each prefix [n].
        offsets: For each query and last action the squared distance outside those coordinates [Q,
            K].
    """

    depth: int
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    target: Tensor
    query: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.query)

    def narrow(self, first: int, count: int) -> Prefixes:
        """Some of the prefixes, without a copy."""
        part = slice(first, first + count)
        return Prefixes(
            depth=self.depth,
            keys=tuple(key[part] for key in self.keys),
            values=tuple(value[part] for value in self.values),
            target=self.target[part],
            query=self.query[part],
            offsets=self.offsets,
        )


class IncrementalField:
    """An energy field frozen for search. Build a new one when the weights change.

    Args:
        field: The field; taken in evaluation mode, without gradients.
    """

    @torch.inference_mode()
    def __init__(self, field: EnergyField) -> None:
        self.field = field
        self.horizon = field.horizon
        predictor = field.predictor
        self._blocks: list[Block] = list(predictor.blocks)  # type: ignore[arg-type]
        # tokens of the vocabulary and of the mask at each place, and their projections in the first
        # block
        place = predictor.pos_embed
        self._actions = predictor.action_tokens() + place[1::2, None]  # [T, K, D]
        self._masks = predictor.state_mask_token + place[2::2]  # [T, D]
        first = self._blocks[0].attn.qkv
        self._action_qkv, self._mask_qkv = (
            first(normalise(self._actions)),
            first(normalise(self._masks)),
        )
        heads, width = field.config.heads, field.config.width
        self._scale = (width // heads) ** -0.5
        # which head each of the D coordinates belongs to, [D, heads]
        self._membership = torch.eye(heads, device=place.device).repeat_interleave(
            width // heads, dim=0
        )
        # what the two tokens of a child see: all above, the action not the state behind it
        self._pair_mask = torch.ones(2, 2 * self.horizon + 1, dtype=torch.bool, device=place.device)
        self._pair_mask[0, -1] = False
        # with W = Q R and c = g − b − skip, ‖W h − c‖² = ‖R h − Qᵀc‖² + ‖c − Q Qᵀc‖², a sum of
        # squares
        weight, self._bias = predictor.state_head.weight, predictor.state_head.bias
        if weight.shape[0] > weight.shape[1]:
            basis, triangle = torch.linalg.qr(weight.double())
            self._basis: Tensor | None = basis
            self._head = triangle.float()
        else:
            self._basis, self._head = None, weight
        skip = predictor.skip()
        self._skip = None if skip is None else skip.double()

    @property
    def device(self) -> torch.device:
        """Where observations and actions are expected."""
        return torch.device(self._head.device)

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Energies [B] of full sequences, evaluated one by one; see `EnergyField.energy`."""
        with torch.inference_mode():
            return self.field.energy(initial, goal, actions)

    def relaxed_energy(
        self, initial: Tensor, goal: Tensor, actions: Tensor, mixture: Tensor
    ) -> Tensor:
        """Energies [B] of mixtures of actions.

        Differentiable even where the caller has switched gradients off.

        See `EnergyField.relaxed_energy`. The weights are as they were: differentiate by the mixture
        with `torch.autograd.grad`, so that no gradient is left at them.
        """
        with torch.inference_mode(False), torch.enable_grad():
            return self.field.relaxed_energy(initial, goal, actions, mixture)

    def bytes_per_mixture(self, actions: int) -> int:
        """Memory that the relaxed energy of one mixture of so many actions takes until it has been differentiated."""
        config = self.field.config
        tokens, hidden = 2 * self.horizon + 1, round(config.mlp_ratio * config.width)
        # of each block: stream twice, norms twice, q, k, v, mixed, MLP three times, attention; as
        # much again on the way back
        block = tokens * (8 * config.width + 3 * hidden + config.heads * tokens)
        return 4 * (2 * len(self._blocks) * block + 4 * self.horizon * actions)

    def bytes_per_child(self, depth: int, *, leaf: bool, each: bool = False) -> int:
        """Memory that one child of a prefix of the given depth takes while it is computed and.

        Unless a leaf, kept.

        Args:
            depth: Actions of the parent.
            leaf: Whether the child is a full sequence.
            each: Whether the child is computed by `extend_each`, which copies its parent's keys and
                values.
        """
        width, heads = self.field.config.width, self.field.config.heads
        hidden = round(self.field.config.mlp_ratio * width)
        # two tokens: stream, norm, q, k, v, mixed, MLP twice; attention scores twice; the next
        # level's cache
        working = 2 * (6 * width + 2 * hidden) + 4 * heads * (2 * depth + 3)
        copied = 4 * (2 * depth + 3) * width if each else 0
        kept = 0 if leaf else 2 * len(self._blocks) * (2 * depth + 3) * width
        return 4 * (working + copied + kept)

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations that one token costs.

        Attention to its few predecessors left out.
        """
        config = self.field.config
        return round(2 * len(self._blocks) * config.width**2 * (4 + 2 * config.mlp_ratio))

    def coarse(self) -> AbstractContextManager[object]:
        """While open, matrix products are taken in bfloat16.

        Keys and values kept in it but for the first block's.
        """
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @torch.inference_mode()
    def root(self, initial: Tensor, goal: Tensor) -> Prefixes:
        """The empty prefixes of Q queries.

        Args:
            initial: Initial observations [Q, E].
            goal: Goal observations [Q, E].
        """
        predictor = self.field.predictor
        x = (predictor.state_token(self.field.centred(initial)) + predictor.pos_embed[0])[:, None]
        keys, values = [], []
        for block in self._blocks:
            _, key, value = block.attn.qkv(normalise(x)).chunk(3, dim=-1)
            keys.append(key)
            values.append(value)
            x = x + block.attn.proj(value)  # one key: attention is its value
            x = x + block.mlp(normalise(x))
        wanted = (self.field.target(goal) - self._bias).double()
        offsets = self._outside(wanted)[:, None].expand(-1, predictor.action_count)
        if self._skip is not None:  # ‖c − s‖² by parts, so that no [Q, K, E] is made
            shared = wanted @ self._skip.T - self._inside(wanted) @ self._inside(self._skip).T
            offsets = (offsets + self._outside(self._skip) - 2 * shared).clamp_min(0)
        return Prefixes(
            depth=0,
            keys=tuple(keys),
            values=tuple(values),
            target=self._inside(wanted).float(),
            query=torch.arange(len(goal), device=goal.device),
            offsets=offsets.float(),
        )

    def _inside(self, wanted: Tensor) -> Tensor:
        """Coordinates of vectors […, E] in the reach of the state head […, R]."""
        return wanted if self._basis is None else wanted @ self._basis

    def _outside(self, wanted: Tensor) -> Tensor:
        """Squared distance of vectors […, E] from that reach […]."""
        return (wanted.square().sum(dim=-1) - self._inside(wanted).square().sum(dim=-1)).clamp_min(
            0
        )

    @torch.inference_mode()
    def extend(self, prefixes: Prefixes, actions: Tensor) -> Prefixes:
        """Continue every prefix by every action.

        Args:
            prefixes: n prefixes of depth < T − 1.
            actions: Action ids [A].

        Returns:
            n · A prefixes, those of one parent together, in the order of `actions`.
        """
        count = len(actions)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        x: Tensor | None = None
        for index, block in enumerate(self._blocks):
            x, key, value = self._children(block, index, x, prefixes, actions)
            for kept, own, cache in (
                (keys, key, prefixes.keys[index]),
                (values, value, prefixes.values[index]),
            ):
                above = cache[:, None].expand(-1, count, -1, -1)
                own = own.expand(len(prefixes), -1, -1, -1)
                kept.append(
                    torch.cat([above, own], dim=2).flatten(0, 1)
                )  # each child's own pair behind its parent's
        return Prefixes(
            depth=prefixes.depth + 1,
            keys=tuple(keys),
            values=tuple(values),
            target=prefixes.target.repeat_interleave(count, dim=0),
            query=prefixes.query.repeat_interleave(count),
            offsets=prefixes.offsets,
        )

    @torch.inference_mode()
    def extend_each(self, prefixes: Prefixes, parents: Tensor, actions: Tensor) -> Prefixes:
        """Continue chosen prefixes, each by an action of its own.

        Args:
            prefixes: Prefixes of depth < T − 1.
            parents: Which of them each child continues [m]; ascending, so that queries stay
                together.
            actions: The action of each child [m].

        Returns:
            m prefixes.
        """
        keys: list[Tensor] = []
        values: list[Tensor] = []
        x: Tensor | None = None
        for index, block in enumerate(self._blocks):
            x, key, value = self._each(block, index, x, prefixes, parents, actions)
            keys.append(key)
            values.append(value)
        return Prefixes(
            depth=prefixes.depth + 1,
            keys=tuple(keys),
            values=tuple(values),
            target=prefixes.target[parents],
            query=prefixes.query[parents],
            offsets=prefixes.offsets,
        )

    @torch.inference_mode()
    def leaf_energy_each(self, prefixes: Prefixes, parents: Tensor, actions: Tensor) -> Tensor:
        """Energies [m] of full sequences that end chosen prefixes, each by an action of its own.

        See `extend_each`.
        """
        x: Tensor | None = None
        for index, block in enumerate(self._blocks):
            x, _, _ = self._each(
                block,
                index,
                x,
                prefixes,
                parents,
                actions,
                goal_only=index == len(self._blocks) - 1,
            )
        assert x is not None
        target = prefixes.target[parents]
        if self._skip is not None:
            target = target - self._inside(self._skip[actions]).float()
        squared = (
            (F.linear(self.field.predictor.norm(x[:, -1]), self._head) - target)
            .square()
            .sum(dim=-1)
        )
        return self.field.from_squared(squared + prefixes.offsets[prefixes.query[parents], actions])

    @torch.inference_mode()
    def leaf_energy(self, prefixes: Prefixes, actions: Tensor) -> Tensor:
        """Energies of the full sequences that end every prefix by every action.

        Args:
            prefixes: n prefixes of depth T − 1.
            actions: Action ids [A].

        Returns:
            Energies [n, A], float32.
        """
        x: Tensor | None = None
        for index, block in enumerate(self._blocks):
            x, _, _ = self._children(
                block, index, x, prefixes, actions, goal_only=index == len(self._blocks) - 1
            )
        assert x is not None
        target = prefixes.target[:, None]
        if self._skip is not None:
            target = target - self._inside(self._skip[actions]).float()
        squared = (
            (F.linear(self.field.predictor.norm(x[:, :, -1]), self._head) - target)
            .square()
            .sum(dim=-1)
        )
        return self.field.from_squared(squared + prefixes.offsets[prefixes.query][:, actions])

    def _children(
        self,
        block: Block,
        index: int,
        x: Tensor | None,
        prefixes: Prefixes,
        actions: Tensor,
        *,
        goal_only: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One block over the two tokens of every child.

        Returns tokens [n, A, 2 or 1, D] and their keys and values.

        In the first block all parents' children project alike, and keys and values are those of one
        parent [1, A, 2, D].
        """
        depth, count, width = prefixes.depth, len(actions), self.field.config.width
        if x is None:
            x = torch.stack(
                [self._actions[depth, actions], self._masks[depth].expand(count, -1)], dim=1
            )[None]
            qkv = torch.stack(
                [self._action_qkv[depth, actions], self._mask_qkv[depth].expand(count, -1)], dim=1
            )[None]
            query, key, value = qkv.chunk(3, dim=-1)
        else:
            normed = normalise(x)
            weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
            query = F.linear(
                normed[:, :, 1:] if goal_only else normed, weight[:width], bias[:width]
            )
            key, value = F.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        if goal_only:
            query, x = query[:, :, -1:], x[:, :, 1:]
        mixed = self._attend(
            query * self._scale, key, value, prefixes.keys[index], prefixes.values[index]
        )
        x = x + block.attn.proj(mixed)
        return x + block.mlp(normalise(x)), key, value

    def _each(
        self,
        block: Block,
        index: int,
        x: Tensor | None,
        prefixes: Prefixes,
        parents: Tensor,
        actions: Tensor,
        *,
        goal_only: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One block over the two tokens of chosen children.

        Tokens [m, 2 or 1, D], keys and values [m, 2 · depth + 3, D].
        """
        depth, count, width = prefixes.depth, len(actions), self.field.config.width
        if x is None:
            x = torch.stack(
                [self._actions[depth, actions], self._masks[depth].expand(count, -1)], dim=1
            )
            qkv = torch.stack(
                [self._action_qkv[depth, actions], self._mask_qkv[depth].expand(count, -1)], dim=1
            )
            query, key, value = qkv.chunk(3, dim=-1)
        else:
            normed = normalise(x)
            weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
            query = F.linear(normed[:, 1:] if goal_only else normed, weight[:width], bias[:width])
            key, value = F.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        mask = self._pair_mask[:, -(2 * depth + 3) :]
        if goal_only:
            query, x, mask = query[:, -1:], x[:, 1:], mask[1:]
        key = torch.cat([prefixes.keys[index][parents], key], dim=1)
        value = torch.cat([prefixes.values[index][parents], value], dim=1)
        split = block.attn.split
        mixed = F.scaled_dot_product_attention(
            split(query), split(key), split(value), attn_mask=mask
        )
        x = x + block.attn.proj(mixed.transpose(-3, -2).flatten(-2))
        return x + block.mlp(normalise(x)), key, value

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, cached_key: Tensor, cached_value: Tensor
    ) -> Tensor:
        """Attention of each child's tokens to the parent's cache and, causally.

        To the child's own pair.

        Heads are never split off: the cache is spread over heads instead, zero outside a head's
        coordinates, so that all products are plain matrix products in the layout of the tokens.

        Args:
            query: Scaled queries [n or 1, A, t, D]; t = 2, or 1 for the state token alone.
            key: Keys of the pair [n or 1, A, 2, D].
            value: Values of the pair, likewise.
            cached_key: The parent's keys [n, L, D].
            cached_value: The parent's values, likewise.

        Returns:
            [n, A, t, D].
        """
        member = self._membership
        n, length, width = cached_key.shape
        count, tokens, heads = query.shape[1], query.shape[2], member.shape[1]
        spread_key = (cached_key.transpose(1, 2)[..., None] * member[:, None]).flatten(
            2
        )  # [n, D, L · heads]
        spread_value = (cached_value[:, :, None] * member.T).flatten(1, 2)  # [n, L · heads, D]
        above = (query.flatten(1, 2) @ spread_key).view(n, count, tokens, length, heads)
        own = torch.full((len(query), count, tokens, 2, heads), -torch.inf, device=query.device)
        own[:, :, :, 0] = (query * key[:, :, :1]) @ member
        own[:, :, -1:, 1] = (
            query[:, :, -1:] * key[:, :, 1:]
        ) @ member  # the action does not see the state behind it
        weights = torch.cat([above, own.expand(n, -1, -1, -1, -1)], dim=3).softmax(dim=3)
        from_cache = (
            weights[:, :, :, :length].reshape(n, count * tokens, length * heads) @ spread_value
        )
        mixed = from_cache.view(n, count, tokens, width)
        mixed = mixed.addcmul_(weights[:, :, :, length] @ member.T, value[:, :, :1])
        mixed[:, :, -1:].addcmul_(weights[:, :, -1:, length + 1] @ member.T, value[:, :, 1:])
        return mixed
