"""The tokens of a prefix's children, block by block.

A child adds two tokens to its parent: its action and the state after it. What they attend to above
them is the parent's, whose keys and values are kept in `Prefixes` and never computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.predictor import Block, Predictor, normalise

__all__ = ["Children", "Prefixes"]

Tokens = tuple[Tensor, Tensor, Tensor]  # what a block gives: tokens, keys, values


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of one length for one or several queries: what their continuations need.

    Attributes:
        depth: Actions so far.
        keys: Keys of each block [n, 2 · depth + 1, D], over all prefixes of all queries.
        values: Values, likewise.
        target: Where the goal lies for each prefix, in the coordinates of the distance [n, R].
        query: Query of each prefix [n].
        offsets: For each query and last action the squared distance outside those coordinates
            [Q, K].
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


class Children:
    """Evaluates the two tokens of children.

    There are two ways through a block. `of_every` continues each prefix by the same actions: the
    children of one parent share its keys and values, which are read once for all of them.
    `of_chosen` continues chosen prefixes by an action of their own: each child gets a copy of its
    parent's keys and values, so that any selection makes one plain batch.

    Args:
        predictor: The predictor, whose weights are taken as they are now.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._blocks: list[Block] = list(predictor.blocks)  # type: ignore[arg-type]
        self._width, heads = predictor.config.width, predictor.config.heads
        place, horizon = predictor.pos_embed, predictor.horizon
        # Tokens of the vocabulary and of the mask at each place. They are the same for all queries
        # and prefixes, and so are their projections in the first block: both come from a table.
        self._actions = predictor.action_tokens() + place[1::2, None]  # [T, K, D]
        self._masks = predictor.state_mask_token + place[2::2]  # [T, D]
        project = self._blocks[0].attn.qkv
        self._action_qkv = project(normalise(self._actions))
        self._mask_qkv = project(normalise(self._masks))
        self._scale = (self._width // heads) ** -0.5
        # which head each of the D coordinates belongs to, [D, heads]
        self._membership = torch.eye(heads, device=place.device).repeat_interleave(
            self._width // heads, dim=0
        )
        # what the two tokens of a child see: all above, the action not the state behind it
        self._pair_mask = torch.ones(2, 2 * horizon + 1, dtype=torch.bool, device=place.device)
        self._pair_mask[0, -1] = False

    def of_every(
        self, prefixes: Prefixes, actions: Tensor, *, leaf: bool = False
    ) -> Iterator[Tokens]:
        """Every prefix continued by every action, one block after the other.

        Args:
            prefixes: n parents.
            actions: Action ids [A].
            leaf: Whether the children are full sequences, of which the last block need only give
                the goal token.

        Yields:
            Tokens [n, A, 2 or 1, D] and the keys and values of the pairs [n, A, 2, D]. After the
            first block, keys and values do not differ by parent: [1, A, 2, D].
        """
        x, qkv = self._first(prefixes.depth, actions)
        x, qkv = x[None], qkv[None]
        for index, block in enumerate(self._blocks):
            goal_only = leaf and index == len(self._blocks) - 1
            query, key, value = (
                self._projected(block, x, goal_only=goal_only) if index else qkv.chunk(3, dim=-1)
            )
            if goal_only:
                query, x = query[:, :, -1:], x[:, :, 1:]
            mixed = self._attend(
                query * self._scale, key, value, prefixes.keys[index], prefixes.values[index]
            )
            x = x + block.attn.proj(mixed)
            x = x + block.mlp(normalise(x))
            yield x, key, value

    def of_chosen(
        self, prefixes: Prefixes, parents: Tensor, actions: Tensor, *, leaf: bool = False
    ) -> Iterator[Tokens]:
        """Chosen prefixes, each continued by an action of its own, one block after the other.

        Args:
            prefixes: Prefixes.
            parents: Which of them each child continues [m].
            actions: The action of each child [m].
            leaf: As in `of_every`.

        Yields:
            Tokens [m, 2 or 1, D], and all keys and values that the children's own children will
            see [m, 2 · depth + 3, D].
        """
        x, qkv = self._first(prefixes.depth, actions)
        for index, block in enumerate(self._blocks):
            goal_only = leaf and index == len(self._blocks) - 1
            query, key, value = (
                self._projected(block, x, goal_only=goal_only) if index else qkv.chunk(3, dim=-1)
            )
            mask = self._pair_mask[:, -(2 * prefixes.depth + 3) :]
            if goal_only:
                query, x, mask = query[:, -1:], x[:, 1:], mask[1:]
            key = torch.cat([prefixes.keys[index][parents], key], dim=1)
            value = torch.cat([prefixes.values[index][parents], value], dim=1)
            split = block.attn.split
            mixed = F.scaled_dot_product_attention(
                split(query), split(key), split(value), attn_mask=mask
            )
            x = x + block.attn.proj(mixed.transpose(-3, -2).flatten(-2))
            x = x + block.mlp(normalise(x))
            yield x, key, value

    def _first(self, depth: int, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs of tokens [A, 2, D] below a prefix, and their projections in the first block."""
        states = self._masks[depth].expand(len(actions), -1)
        state_qkv = self._mask_qkv[depth].expand(len(actions), -1)
        return (
            torch.stack([self._actions[depth, actions], states], dim=1),
            torch.stack([self._action_qkv[depth, actions], state_qkv], dim=1),
        )

    def _projected(self, block: Block, x: Tensor, *, goal_only: bool) -> Tokens:
        """Queries, keys and values of pairs […, 2, D]; if asked, no query of the action token."""
        normed, width = normalise(x), self._width
        weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
        query = F.linear(normed[..., 1:, :] if goal_only else normed, weight[:width], bias[:width])
        key, value = F.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        return query, key, value

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, cached_key: Tensor, cached_value: Tensor
    ) -> Tensor:
        """Attention of each child's tokens to the parent's cache and to the child's own pair.

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
        # [n, D, L · heads] and [n, L · heads, D]
        spread_key = (cached_key.transpose(1, 2)[..., None] * member[:, None]).flatten(2)
        spread_value = (cached_value[:, :, None] * member.T).flatten(1, 2)

        # Scores of the cache: one product of all children's queries with their parent's keys.
        above = (query.flatten(1, 2) @ spread_key).view(n, count, tokens, length, heads)
        # Scores of the pair. Products by coordinate are summed over each head; the action does not
        # see the state behind it, whose score stays −∞ there.
        pair = torch.full((len(query), count, tokens, 2, heads), -torch.inf, device=query.device)
        pair[:, :, :, 0] = (query * key[:, :, :1]) @ member
        pair[:, :, -1:, 1] = (query[:, :, -1:] * key[:, :, 1:]) @ member

        # One softmax over both, then the values of the cache and of the pair by their weights.
        weights = torch.cat([above, pair.expand(n, -1, -1, -1, -1)], dim=3).softmax(dim=3)
        of_cache = weights[:, :, :, :length].reshape(n, count * tokens, length * heads)
        mixed = (of_cache @ spread_value).view(n, count, tokens, width)
        mixed = mixed.addcmul_(weights[:, :, :, length] @ member.T, value[:, :, :1])
        mixed[:, :, -1:].addcmul_(weights[:, :, -1:, length + 1] @ member.T, value[:, :, 1:])
        return mixed
