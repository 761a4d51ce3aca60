"""The tokens of a prefix's children, block by block, by layers frozen for search.

A child adds two tokens to its parent: its action and the state after it. They attend to the keys
and values of the parent, which are kept in `Prefixes` and never computed again.

On an x86 processor products run by oneDNN on packed weights, GELU included. PyTorch's other kernels
use half the vector width of some processors, and GELU takes them as long as a product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.layers import has_packed_product
from cefito.field.predictor import Predictor, TransformerBlock, normalise
from cefito.runtime import capability

_TYPICAL = 1024  # rows of a product, for which weights are packed


class FrozenLinear:
    """A linear layer, whose output may pass a tanh-form GELU.

    Args:
        weight: Weight [out, in].
        bias: Bias [out]; None without one.
        gelu: Whether the output passes the GELU.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> None:
        self._weight, self._bias, self._gelu = weight, bias, gelu

    def __reduce__(self) -> tuple[object, ...]:
        """Copy without the packed weights, which cannot be copied."""
        return FrozenLinear, (self._weight, self._bias, self._gelu)

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        x = x.to(self._weight.dtype)
        if self._packed is None:
            x = F.linear(x, self._weight, self._bias)
            return F.gelu(x, approximate="tanh") if self._gelu else x
        name, form = ("gelu", "tanh") if self._gelu else ("none", "")
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, name, [], form)  # type: ignore[no-any-return]

    @cached_property
    def _packed(self) -> Tensor | None:
        """The weight in oneDNN's layout; None where it has no fast product."""
        device, coarse = self._weight.device, self._weight.dtype != torch.float32
        if not has_packed_product(device) or (coarse and capability(device) == "none"):
            return None
        return torch.ops.mkldnn._reorder_linear_weight(self._weight, _TYPICAL)  # type: ignore[no-any-return]


class FrozenBlock:
    """A transformer block: its projections, and the branch after attention."""

    def __init__(self, block: TransformerBlock, dtype: torch.dtype) -> None:
        self.split, attn, mlp = block.attn.split, block.attn, block.mlp
        layers = (attn.qkv, attn.proj, mlp.fc1, mlp.fc2)
        cast = [
            (layer.weight.detach().to(dtype), layer.bias.detach().to(dtype)) for layer in layers
        ]
        (weight, bias), proj, fc1, fc2 = cast
        width = weight.shape[1]
        self._qkv = FrozenLinear(weight, bias)
        self._query = FrozenLinear(weight[:width], bias[:width])
        self._key_value = FrozenLinear(weight[width:], bias[width:])
        self._proj, self._fc2 = FrozenLinear(*proj), FrozenLinear(*fc2)
        self._fc1 = FrozenLinear(*fc1, gelu=True)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of tokens […, D]."""
        query, key, value = self._qkv(normalise(x)).chunk(3, dim=-1)
        return query, key, value

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values alone."""
        key, value = self._key_value(normalise(x)).chunk(2, dim=-1)
        return key, value

    def queries(self, x: Tensor) -> Tensor:
        """Return queries alone."""
        return self._query(normalise(x))

    def after(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the branches to tokens, given what their attention mixed, both […, D]."""
        # x + W_o attention(LN(x)), then x + MLP(LN(x))
        x = self._proj(mixed).add_(x)
        return self._fc2(self._fc1(normalise(x))).add_(x)


_ROWS = 8  # numbers of tokens are padded to multiples of this
_CACHED = 1 << 15  # numbers of the queries that attend to their keys at a time on a CPU

Pairs = list[tuple[Tensor, Tensor]]  # keys and values of each block
# block, queries (None if nothing reads its output), keys, values → what attention mixes
Attention = Callable[[int, Tensor | None, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of one length of one or several queries, with the cache for their continuations."""

    depth: int  # actions so far
    # keys of each block [n, 2 · depth + 1, D], over all prefixes of all queries
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]  # values, likewise
    target: Tensor  # goal of each prefix in the coordinates of `ReducedDistance` [n, R]
    query: Tensor  # query of each prefix [n]
    # for each query and last action the squared distance outside those coordinates [Q, K]
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.query)

    def narrow(self, first: int, count: int) -> Prefixes:
        """Return `count` of the prefixes, without a copy."""
        rows = slice(first, first + count)
        return replace(
            self,
            keys=tuple(key[rows] for key in self.keys),
            values=tuple(value[rows] for value in self.values),
            target=self.target[rows],
            query=self.query[rows],
        )


class Children:
    """Evaluates the two tokens of children.

    There are two ways through a block. `of_every` continues each prefix by the same actions: the
    children of one parent share its keys and values, which are read once for all of them.
    `of_nodes` continues prefixes of any lengths by an action of their own (`PrefixCache`): each
    child attends to a copy of the keys and values on its path, so that any selection makes one
    plain batch.
    """

    def __init__(self, predictor: Predictor, dtype: torch.dtype = torch.float32) -> None:
        blocks: list[TransformerBlock] = list(predictor.blocks)  # type: ignore[arg-type]
        self.blocks = [FrozenBlock(block, dtype) for block in blocks]
        self._width, heads = predictor.config.width, predictor.config.heads
        place, horizon = predictor.pos_embed, predictor.horizon
        # Tables of the action and mask tokens at each place, and of their projections in the first
        # block, which are the same for all queries and prefixes.
        actions = predictor.action_tokens() + place[1::2, None]  # [T, K, D]
        masks = predictor.state_mask_token + place[2::2]  # [T, D]
        first = blocks[0].attn.qkv
        self._action_qkv = first(normalise(actions)).to(dtype)
        self._mask_qkv = first(normalise(masks)).to(dtype)
        self._actions, self._masks = actions.to(dtype), masks.to(dtype)
        self._scale = (self._width // heads) ** -0.5
        # head of each of the D coordinates, one-hot [D, heads]
        self._membership = torch.eye(heads, dtype=dtype, device=place.device).repeat_interleave(
            self._width // heads, dim=0
        )
        self._spread = self._membership.T.contiguous()  # [heads, D]
        # a child's two tokens see everything above; the action does not see its state, [2, 2T + 1]
        self._pair_mask = torch.ones(2, 2 * horizon + 1, dtype=torch.bool, device=place.device)
        self._pair_mask[0, -1] = False

    def of_every(
        self, prefixes: Prefixes, actions: Tensor, *, leaf: bool = False
    ) -> tuple[Tensor, Pairs]:
        """Continue every prefix by every action.

        Return the goal tokens of leaves [n, A, 1, D], and of others each block's keys and values of
        the pairs [n, A, 2, D], after the first block [1, A, 2, D], as they do not differ by parent.

        Args:
            prefixes: n prefixes of one length.
            actions: Action ids [A].
            leaf: Whether the sequences end there.
        """
        pairs: Pairs = []

        def attention(index: int, query: Tensor | None, key: Tensor, value: Tensor) -> Tensor:
            if not leaf:
                pairs.append((key, value))
            if query is None:
                return key
            above = prefixes.keys[index], prefixes.values[index]
            return self._attend(query * self._scale, key, value, *above)

        # [A, 2, D], [A, 2, 3 D]
        x, qkv = self._first(torch.full_like(actions, prefixes.depth), actions)
        ended = slice(None) if leaf else None
        return self._through(x[None], qkv[None], attention, ended=ended), pairs

    def of_nodes(
        self, depths: Tensor, actions: Tensor, attention: Attention, *, leaves: int | None
    ) -> Tensor:
        """Continue prefixes of any depths [N], each by an action of its own [N].

        The first `leaves` end sequences (None if they are not the last): return their goal tokens
        [m, 1, D], and padding.

        Args:
            depths: Number of actions of each prefix [N].
            actions: Action that continues each [N].
            attention: Computes the attention of a block to the keys of the paths.
            leaves: Number of the first ones that end sequences.
        """
        more = _padding(len(actions))
        depths, actions = F.pad(depths, (0, more)), F.pad(actions, (0, more))
        ended = None if leaves is None else slice(leaves + _padding(leaves))
        return self._through(*self._first(depths, actions), attention, ended=ended)

    def _through(
        self, x: Tensor, qkv: Tensor, attention: Attention, *, ended: slice | None
    ) -> Tensor:
        """Pass pairs of tokens [N, …, 2, D] through all blocks, given the first projections.

        The last block computes the states of the pairs that end sequences alone, […, 1, D], and of
        others only keys and values, since nothing reads their outputs.
        """
        final = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            query: Tensor | None = None
            if index == 0:
                query, key, value = qkv.chunk(3, dim=-1)
            elif index < final:
                query, key, value = block.projected(x)
            else:
                key, value = block.keys_values(x)
            if index == final:
                if ended is None:
                    query = None
                else:
                    x = x[ended, ..., 1:, :].contiguous()
                    query = block.queries(x) if query is None else query[ended, ..., 1:, :]
            mixed = attention(index, query, key, value)
            if query is not None:
                x = block.after(x, mixed)
        return x

    def _first(self, depths: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return pairs of tokens [A, 2, D] below prefixes [A], and their first projections."""
        return (
            torch.stack([self._actions[depths, actions], self._masks[depths]], dim=1),
            torch.stack([self._action_qkv[depths, actions], self._mask_qkv[depths]], dim=1),
        )

    def attend_each(
        self, query: Tensor, keys: Tensor, values: Tensor, rows: Tensor | None = None
    ) -> Tensor:
        """Compute attention of pairs of tokens [m, 2, D], or of their states, to keys [m, L, D].

        With rows [m, L], keys and values are these of [R, D]. The last two keys are the pair's own.

        Args:
            query: Queries [m, 2, D], or of states or actions alone [m, 1, D].
            keys: Keys [m, L, D], or [R, D] with rows.
            values: Values of the same shape.
            rows: Numbers of the keys of each pair [m, L].
        """
        mixed = torch.empty_like(query)
        on_cpu = query.device.type == "cpu"
        # on a CPU so many pairs at a time as fit into its cache
        most = max(1, _CACHED // self._width if on_cpu else len(query))
        for start in range(0, len(query), most):
            block = slice(start, start + most)
            key, value = (
                kept[block]
                if rows is None
                else kept.index_select(0, rows[block].flatten()).unflatten(0, rows[block].shape)
                for kept in (keys, values)
            )
            # the action does not see its state
            mask = self._pair_mask[-query.shape[1] :, -key.shape[1] :]
            if on_cpu:
                mixed[block] = self._attend_few(query[block], key, value, mask)
                continue
            split = self.blocks[0].split
            attended = F.scaled_dot_product_attention(
                split(query[block]), split(key), split(value), attn_mask=mask
            )
            mixed[block] = attended.transpose(-3, -2).flatten(-2)
        return mixed

    def _attend_few(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Compute attention [m, t, D] by sums of products, for few queries of each set of keys.

        PyTorch's attention takes twice as long for them.
        """
        heads = self._membership.shape[1]
        query, key, value = (
            tensor.float().unflatten(-1, (heads, -1)) for tensor in (query, key, value)
        )
        # s(t, l) = Σ_d q_td k_ld / √(D/h) of each head, [m, t, L, h]
        scores = self._scale * (query[:, :, None] * key[:, None]).sum(dim=-1)
        weights = scores.masked_fill_(~mask[:, :, None], -torch.inf).softmax(dim=2)
        mixed: Tensor = (weights[..., None] * value[:, None]).sum(dim=2).flatten(-2)
        return mixed

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, cached_key: Tensor, cached_value: Tensor
    ) -> Tensor:
        """Compute attention of each child's tokens to the parent's cache and to its own pair.

        Heads are not split: the cache is copied for each head, zero outside the head's coordinates
        (K_h = K ∘ 1_h), so that all products are plain matrix products in the layout of the tokens.
        """
        # scaled queries [n or 1, A, t, D]; t = 2, or 1 for the state token alone; keys and values
        # of the pair [n or 1, A, 2, D] and of the parent [n, L, D] → [n, A, t, D]
        member, spread = self._membership, self._spread
        n, length, width = cached_key.shape
        count, tokens, heads = query.shape[1], query.shape[2], member.shape[1]
        # K ∘ 1_h and V ∘ 1_h for each head h: [n, D, L · heads] and [n, L · heads, D]
        spread_key = (cached_key[:, :, None] * spread).flatten(1, 2).mT
        spread_value = (cached_value[:, :, None] * spread).flatten(1, 2)

        # Scores of the cache, q · K_h: one product for all children of a parent,
        # [n, A, t, L, heads].
        above = (query.flatten(1, 2) @ spread_key).view(n, count, tokens, length, heads)
        # Scores of the pair, Σ_{d ∈ h} q_d k_d: [n or 1, A, t, 2, heads]. The action does not see
        # its state, whose score stays −∞.
        pair = query.new_full((len(query), count, tokens, 2, heads), -torch.inf)
        pair[:, :, :, 0] = _times(query * key[:, :, :1], member)
        pair[:, :, -1:, 1] = _times(query[:, :, -1:] * key[:, :, 1:], member)

        # One softmax over both (axis 3), then the weighted values of the cache and of the pair.
        weights = torch.cat([above, pair.expand(n, -1, -1, -1, -1)], dim=3).softmax(dim=3)
        of_cache = weights[:, :, :, :length].reshape(n, count * tokens, length * heads)
        mixed = (of_cache @ spread_value).view(n, count, tokens, width)
        mixed.addcmul_(_times(weights[:, :, :, length], spread), value[:, :, :1])
        mixed[:, :, -1:].addcmul_(_times(weights[:, :, -1:, length + 1], spread), value[:, :, 1:])
        return mixed


def _padding(count: int) -> int:
    """Return the number of padding tokens, such that few different numbers of tokens occur.

    On a CPU, products are compiled for each shape and cached, which takes time and memory. At most
    an eighth is added to large numbers.
    """
    return -count % max(_ROWS, 1 << max(0, count.bit_length() - 4))


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply […, D] by [D, R] as one product.

    For slices, PyTorch would make a batch of products, each with a copy of the matrix.
    """
    return (x.reshape(-1, x.shape[-1]) @ matrix).view(*x.shape[:-1], -1)
